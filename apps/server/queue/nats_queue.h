// The queue of many machines, on NATS JetStream. Subjects and streams are described in docs/scale.md.
#pragma once
#include "server/queue/job_queue.h"

namespace danqing::server {

struct NatsOptions {
  std::vector<std::string> servers;  ///< "nats://host:port", "tls://host:port"
  std::string prefix = "danqing";    ///< of subjects; streams in upper case
  std::string origin;                ///< whose jobs' ends are heard here; empty: nobody's
  std::string name;                  ///< of the connection and in stories
  std::string creds, user, password, token;
  std::string tls_ca, tls_cert, tls_key;  ///< files
  double keep_hours = 24;
  int replicas = 1;
};

/// Connects in the background and again whenever the connection breaks. Errors: bad_input (files), usage (this build
/// has no NATS client).
Result<std::unique_ptr<JobQueue>> open_nats_queue(const NatsOptions& options, const QueueRules& rules);

}  // namespace danqing::server
