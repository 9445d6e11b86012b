// The memory of one running job: the plan, its carrying out between the stages, and the second try when a device turns
// out to have less than it said.
#pragma once
#include <string>
#include <vector>

#include "pipeline/generate.h"

namespace danqing {

class JobResidency {
 public:
  JobResidency(ModelFamily& family, JobMemory memory) : family_(family), memory_(std::move(memory)) {}
  /// Whatever happened: no compute buffer, and nothing that the plan does not keep, stays behind.
  ~JobResidency();

  /// Decides for `job`, tells the networks and loads those that stay. Errors: usage, bad_input, does_not_fit,
  /// cancelled.
  Result<void> plan(const JobShape& job, const StageControl& control);
  const MemoryPlan& current() const { return decision_.plan; }
  bool keeps(memory::Part part) const { return decision_.keep[static_cast<size_t>(part)]; }
  /// A stage is over: its compute buffers go, and its weights unless they stay.
  void leave(memory::Part part);

  /// run() once more under a smaller plan when the device refuses memory that the plan counted on; at most once a job.
  /// `note` gets one sentence about it.
  template <class F>
  Result<void> fitting(const StageControl& control, F run) {
    Result<void> done = run();
    if (done || done.error().code != ErrorCode::does_not_fit) return done;
    if (!shrink(done.error(), control)) return done;
    return run();
  }

 private:
  Result<void> load_residents(const StageControl& control);
  bool shrink(const Error& refusal, const StageControl& control);
  ModelFamily& family_;
  JobMemory memory_;
  JobShape job_;
  memory::Decision decision_;
  bool shrunk_ = false;
};

/// The job of a request whose prompts are known, or with the enhancer still to come (`enhanced` false): then each text
/// counts with the most that the enhancer may write. `revised`: one a prompt.
Result<JobShape> job_shape(ModelFamily& family, const GenerateRequest& request, const Settings& settings,
                           const std::vector<std::string>& revised, bool enhanced);

}  // namespace danqing
