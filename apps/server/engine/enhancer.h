// Who writes prompts out: the model's own enhancer (on the inference thread) or an OpenAI-compatible chat endpoint
// (on threads of its own, while the job waits). Answers are cached; a failure is a note, the job goes on.
#pragma once
#include <list>
#include <mutex>

#include "server/engine/models.h"
#include "server/jobs/jobs.h"

namespace danqing::server {

class Enhancer {
 public:
  Enhancer(const Config& config, Models& models, Jobs& jobs);
  void stop() { threads_.stop(); }
  bool external() const { return !config_.enhancer_url.empty(); }
  /// For Jobs::submit: starts the external enhancer where the job wants it, and holds the job meanwhile.
  void prepare(const LivePtr& job);
  /// On the inference thread: fills `revised` where the model's own enhancer is wanted.
  void enhance(const LivePtr& job, Engine& engine);
  /// One call of the endpoint. Errors name the address, never the key.
  Result<std::string> ask(const std::string& prompt, const EnhanceOptions& options);

 private:
  bool cached(const std::string& key, std::string& text);
  void remember(const std::string& key, const std::string& text);
  const Config& config_;
  Models& models_;
  Jobs& jobs_;
  std::string api_key_;
  std::mutex mutex_;
  std::list<std::pair<std::string, std::string>> cache_;  // newest first
  TaskThreads threads_{2};
};

}  // namespace danqing::server
