// A job while it is drawn.
#pragma once
#include "server/engine/worker.h"

namespace danqing::server {

struct Worker::Running {
  Lease lease;
  std::vector<std::string> revised;
  int images = 0;
  double started = 0;
  std::string stage;  // of the last progress that was told
  double last_told = 0;
  // Outbox alone.
  std::vector<std::string> notes;
  std::vector<Picture> pictures;
  bool cancelled() const { return lease.flags->cancelled; }
  const Ticket& ticket() const { return lease.ticket; }
  Update update(Update::Kind kind, const std::string& worker) const {
    Update u;
    u.kind = kind;
    u.id = lease.ticket.id;
    u.worker = worker;
    return u;
  }
};

}  // namespace danqing::server
