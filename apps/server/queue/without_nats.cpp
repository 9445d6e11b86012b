// In place of the NATS queue where its client library was missing when this was built.
#include "base/try.h"
#include "server/queue/nats_queue.h"
#include "server/queue/open_queue.h"

namespace danqing::server {

Result<std::unique_ptr<JobQueue>> open_nats_queue(const NatsOptions&, const QueueRules&) {
  return usage_error(
      "[queue] this build has no NATS client: install libnats-dev (Debian 12, Ubuntu 24.04), configure and build "
      "again");
}

std::string nats_text() { return "none (libnats-dev was not there when this was built)"; }

}  // namespace danqing::server
