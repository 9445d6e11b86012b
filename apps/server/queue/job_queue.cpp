#include "server/queue/job_queue.h"

namespace danqing::server {

Json to_json(const DeadJob& d) {
  return {{"id", d.ticket.id}, {"when", d.when}, {"reason", d.reason}, {"story", d.story}, {"job", to_json(d.ticket)}};
}

Json to_json(const QueueStats& s) {
  Json lanes = Json::array();
  for (const QueueStats::Lane& l : s.lanes)
    lanes.push_back({{"model", l.model},
                     {"class", l.size_class},
                     {"waiting", l.waiting},
                     {"running", l.running},
                     {"again", l.again}});
  return {{"where", s.where}, {"waiting", s.waiting}, {"running", s.running}, {"dead", s.dead}, {"lanes", lanes}};
}

}  // namespace danqing::server
