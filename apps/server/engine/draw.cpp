// One run for one or several jobs.
#include <algorithm>

#include "base/try.h"
#include "monitor/sampler.h"
#include "server/engine/running.h"

namespace danqing::server {
namespace {

using RunningJobs = std::vector<std::pair<const Ticket*, const std::vector<std::string>*>>;

/// Each picture a prompt of its own, so that prompts, seeds and revised prompts line up.
GenerateRequest merged(const RunningJobs& batch, int batch_size) {
  GenerateRequest all = batch[0].first->spec.request;
  bool revised = false;
  for (const auto& [t, r] : batch) revised |= !r->empty();
  if (batch.size() == 1) {
    all.revised_prompts = *batch[0].second;
  } else {
    all.prompts.clear(), all.negative_prompts.clear(), all.seeds.clear(), all.revised_prompts.clear();
    all.images_per_prompt = 1;
    for (const auto& [ticket, own] : batch) {
      const GenerateRequest& r = ticket->spec.request;
      for (int i = 0; i < ticket->images(); ++i) {
        const auto prompt = static_cast<size_t>(i / r.images_per_prompt);
        all.prompts.push_back(r.prompts[prompt]);
        all.negative_prompts.push_back(r.negative_prompts.empty()       ? ""
                                       : r.negative_prompts.size() == 1 ? r.negative_prompts[0]
                                                                        : r.negative_prompts[prompt]);
        all.seeds.push_back(r.seeds.size() > 1 ? r.seeds[static_cast<size_t>(i)]
                                               : r.seeds[0] + static_cast<uint64_t>(i));
        if (revised) all.revised_prompts.push_back(own->empty() ? r.prompts[prompt] : (*own)[prompt]);
      }
    }
  }
  all.enhancer = EnhancerMode::off;
  all.enhance.seed.reset();
  if (all.batch_size == 0) all.batch_size = batch_size;
  return all;
}

Json timing_json(const GenerateResult& r) {
  return {{"total", r.seconds_total},
          {"load", r.seconds_load},
          {"text", r.seconds_text},
          {"denoise", r.seconds_denoise},
          {"decode", r.seconds_decode},
          {"per_step", r.seconds_per_step},
          {"num_inference_steps", r.num_inference_steps}};
}

/// The card's energy, shared by the pictures of the run.
void add_energy(Json& timing, const std::optional<monitor::EnergyMeter::Result>& energy, int images, int of_job) {
  if (!energy || images <= 0) return;
  const double each = energy->joules / images;
  timing["energy"] = {
      {"joules", each * of_job}, {"joules_per_picture", each}, {"source", energy->counted ? "counter" : "power"}};
}

}  // namespace

void Worker::draw(const std::vector<RunningPtr>& batch, Engine& engine) {
  int images = 0;
  std::vector<std::pair<RunningPtr, int>> owner;  // of picture i: the job and its own number there
  RunningJobs jobs;
  for (const RunningPtr& j : batch) {
    for (int i = 0; i < j->images; ++i) owner.emplace_back(j, i);
    images += j->images;
    jobs.emplace_back(&j->ticket(), &j->revised);
  }
  // Jobs that start from a picture run alone.
  const auto request =
      with_init_image(batch[0]->ticket().spec, merged(jobs, batch.size() > 1 ? images : config_.batch_size));
  RunControl control;
  control.cancelled = [&] {
    return interrupted_ || std::all_of(batch.begin(), batch.end(), [](const RunningPtr& j) { return j->cancelled(); });
  };
  control.on_progress = [&](const ProgressEvent& e) { progress(batch, e); };
  control.on_image = [&](const GeneratedImage& g) {
    const auto& [job, n] = owner[static_cast<size_t>(g.index)];
    image(job, n, g);
  };
  if (config_.preview_every > 0) {
    control.wants_preview = [&](int step) {
      return step % config_.preview_every == 0 && std::any_of(batch.begin(), batch.end(), [](const RunningPtr& j) {
               return j->lease.flags->previews.load();
             });
    };
    control.on_preview = [&](int i, int step, const Image& image) {
      const auto& [job, n] = owner[static_cast<size_t>(i)];
      if (job->lease.flags->previews && !job->cancelled()) preview(job, n, step, image);
    };
  }
  monitor::EnergyMeter meter({.root = config_.sysfs_root, .nvml = {}}, energy_card());
  const auto result = request ? engine.generate(*request, control) : Result<GenerateResult>(request.error());
  const auto energy = meter.stop();
  if (result) {
    set_trouble("");
    for (const RunningPtr& j : batch) {
      for (const std::string& n : result->notes) post_out([j, n] { j->notes.push_back(n); });
      Json timing = timing_json(*result);
      add_energy(timing, energy, images, j->images);
      finish(j, {}, timing);
    }
    return;
  }
  const Error& e = result.error();
  if (e.code == ErrorCode::cancelled) {
    for (const RunningPtr& j : batch) give_back(j, false);  // those that ended elsewhere are only let go
    return;
  }
  if (e.code == ErrorCode::does_not_fit && batch.size() > 1) {  // less at a time
    for (const RunningPtr& j : batch) draw({j}, engine);
    return;
  }
  if (e.code == ErrorCode::device_lost) {
    set_trouble(e.message);
    if (options_.shared) {  // another machine may draw it; a job that loses every device ends as a dead letter
      lost_ = true;
      for (const RunningPtr& j : batch) give_back(j, true);
      return;
    }
  }
  for (const RunningPtr& j : batch) finish(j, e, {});
}

}  // namespace danqing::server
