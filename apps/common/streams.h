// Standard streams and signals that a command-line program must expect from its surroundings.
#pragma once

namespace danqing::app {

/// A reader that went away and a full disk become errors of writing instead of the end of the process. Streams that the
/// caller closed are replaced, so that no opened file takes their number and receives our messages.
void prepare_streams();
/// Writes out what stands in the buffers; false if anything printed to standard output was lost.
bool flush_output();

}  // namespace danqing::app
