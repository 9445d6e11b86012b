// What the log says of a job between acceptance and end: its start, its stages, its steps. Wherever it is drawn.
#pragma once
#include "server/jobs/job.h"

namespace danqing::server {

/// The generative part, in OpenTelemetry's names: operation, model, number; the prompts only where `prompts` allows it.
Json gen_ai_fields(const JobSpec& spec, bool prompts);
/// Somebody took it: event.duration is the wait, in nanoseconds.
void log_started(const std::string& trace, const std::string& job, double waited_seconds);
/// A stage began (info), or a step ended (debug; event.duration is its time). Nothing for the parts of other stages.
void log_progress(const std::string& trace, const std::string& job, const ProgressEvent& event, bool new_stage);

}  // namespace danqing::server
