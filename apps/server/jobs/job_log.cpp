#include "server/jobs/job_log.h"

#include "server/ops/ecs_log.h"

namespace danqing::server {
namespace {

int64_t nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

Json fields_of(const std::string& trace, const std::string& job, const char* action) {
  return {{"trace.id", trace}, {"event.action", action}, {"danqing.job.id", job}};
}

}  // namespace

Json gen_ai_fields(const JobSpec& s, bool prompts) {
  Json f{{"gen_ai.operation.name", "generate_content"},
         {"gen_ai.output.type", "image"},
         {"gen_ai.provider.name", "danqing"},
         {"gen_ai.request.model", s.model},
         {"gen_ai.request.choice.count", s.images()}};
  if (!prompts) return f;
  Json messages = Json::array();
  for (const std::string& p : s.request.prompts)
    messages.push_back({{"role", "user"}, {"parts", Json::array({{{"type", "text"}, {"content", p}}})}});
  f["gen_ai.input.messages"] = dump_json(messages);  // as text: nothing in a prompt becomes a field of the index
  return f;
}

void log_started(const std::string& trace, const std::string& job, double waited_seconds) {
  Json f = fields_of(trace, job, "job-started");
  f["event.duration"] = nanoseconds(waited_seconds);
  log_event(log::Level::info, "job started", f);
}

void log_progress(const std::string& trace, const std::string& job, const ProgressEvent& p, bool new_stage) {
  const bool step = p.stage == Stage::denoise && p.seconds_per_step > 0;
  if (!new_stage && !step) return;
  Json f = fields_of(trace, job, step ? "job-step" : "job-stage");
  f["danqing.job.stage"] = std::string(name(p.stage));
  f["danqing.job.step"] = p.step;
  f["danqing.job.steps"] = p.steps;
  if (step) f["event.duration"] = nanoseconds(p.seconds_per_step);
  log_event(step ? log::Level::debug : log::Level::info, step ? "step" : "stage", f);
}

}  // namespace danqing::server
