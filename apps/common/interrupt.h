// Ctrl-C: the first asks the computation to stop, the second ends the process at once.
#pragma once

namespace danqing::app {

void catch_interrupts();  ///< SIGINT and SIGTERM
bool interrupted();

}  // namespace danqing::app
