#include "pipeline/job_memory.h"

#include <algorithm>
#include <map>

#include "base/log.h"
#include "base/try.h"
#include "base/units.h"

namespace danqing {

using memory::Part;

JobResidency::~JobResidency() {
  for (const Part p : memory::kParts) leave(p);
}

Result<void> JobResidency::plan(const JobShape& job, const StageControl& control) {
  job_ = job;
  const memory::Limits limits = memory_limits(*memory_.device, memory_.options);
  DQ_TRY(decision_, plan_job(family_, limits, memory_.options, job));
  log::info("memory: {}, at most {} of {} on {}", decision_.plan.mode, format_bytes(decision_.plan.device_peak),
            format_bytes(decision_.plan.device_memory), decision_.plan.device);
  for (const std::string& n : decision_.plan.notes)
    if (control.note) control.note(n);
  apply(decision_, family_);
  // A budget is kept even where a plan were wrong.
  if (memory_.options.device_memory)
    memory_.device->set_limit(limits.device_memory - std::min(limits.device_memory, decision_.plan.reserve));
  return fitting(control, [&] { return load_residents(control); });
}

Result<void> JobResidency::load_residents(const StageControl& control) {
  for (const Part p : memory::kParts) {
    if (keeps(p)) DQ_CHECK(family_.slot(p)->load(control.on_load));
  }
  return {};
}

void JobResidency::leave(Part part) {
  ComponentSlot* slot = family_.slot(part);
  if (!slot) return;
  if (keeps(part))
    slot->release();
  else
    slot->drop();
}

bool JobResidency::shrink(const Error& refusal, const StageControl& control) {
  if (shrunk_) return false;
  shrunk_ = true;
  // Less than the last plan's peak, whatever the device says it has.
  memory::Limits limits = memory_limits(*memory_.device, memory_.options);
  MemoryOptions options = memory_.options;
  options.reserve = 0;
  limits.device_memory = decision_.plan.device_peak - 1;
  auto smaller = plan_job(family_, limits, options, job_);
  if (!smaller) return false;
  const std::string before = decision_.plan.mode;
  for (const Part p : memory::kParts)
    if (ComponentSlot* slot = family_.slot(p)) slot->drop();
  decision_ = std::move(*smaller);
  apply(decision_, family_);
  if (control.note)
    control.note(
        fmt::format("the device refused memory that it had reported as free ({}); went on with less: {} "
                    "instead of {}, at most {}",
                    refusal.message, decision_.plan.mode, before, format_bytes(decision_.plan.device_peak)));
  return static_cast<bool>(load_residents(control));
}

Result<JobShape> job_shape(ModelFamily& family, const GenerateRequest& request, const Settings& s,
                           const std::vector<std::string>& revised, bool enhanced) {
  std::map<std::string, int64_t> counted;
  const auto count = [&](const std::string& text) -> Result<int64_t> {
    const auto known = counted.find(text);
    if (known != counted.end()) return known->second;
    DQ_TRY(const int64_t n, family.count_tokens(text));
    counted.emplace(text, n);
    return n;
  };
  JobShape job{s.width, s.height, s.batch_size,
               static_cast<int64_t>(s.steps - s.first_step) * (s.sampler == Sampler::heun ? 2 : 1)};
  job.starts_from_image = s.starts_from_image;
  for (size_t i = 0; i < revised.size(); ++i) {
    DQ_TRY(int64_t text, count(revised[i]));
    if (s.enhance && !enhanced) {
      DQ_TRY(const int64_t prompt, family.count_enhancer_tokens(revised[i], s.width, s.height));
      job.enhancer_prompt = std::max(job.enhancer_prompt, prompt);
      job.enhancer_new = request.enhance.max_new_tokens;
      text = std::max<int64_t>(text, request.enhance.max_new_tokens);
    }
    job.text_tokens.insert(job.text_tokens.end(), static_cast<size_t>(request.images_per_prompt), text);
    if (!s.guided) continue;
    DQ_TRY(const int64_t negative, count(s.negative_prompts[i]));
    job.negative_tokens.insert(job.negative_tokens.end(), static_cast<size_t>(request.images_per_prompt), negative);
  }
  return job;
}

}  // namespace danqing
