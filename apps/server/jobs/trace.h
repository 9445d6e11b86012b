// How a job appears in the log.
#pragma once
#include "server/jobs/job.h"
#include "server/ops/ecs_log.h"

namespace danqing::server {

inline Json trace_fields(const JobRecord& r, const char* action) {
  return {{"trace.id", r.trace_id}, {"event.action", action}, {"danqing.job.id", r.id}, {"user.name", r.key}};
}

}  // namespace danqing::server
