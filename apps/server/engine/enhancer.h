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
  /// `jobs`: null where no jobs are accepted (danqing worker).
  Enhancer(const Config& config, Jobs* jobs);
  void stop() { threads_.stop(); }
  bool external() const { return !config_.enhancer_url.empty(); }
  /// For Jobs::submit: starts the external enhancer where the job wants it, and holds the job meanwhile.
  void prepare(const LivePtr& job);
  struct Run {
    std::function<bool()> cancelled;
    std::function<void(const ProgressEvent&)> on_progress;
    std::function<void(const std::string&)> note;
  };
  /// On the inference thread: the prompts as the model's own enhancer writes them, where it is wanted; empty = as
  /// given.
  std::vector<std::string> enhance(const Ticket& ticket, Engine& engine, const Run& run);
  /// One call of the endpoint. Errors name the address, never the key.
  Result<std::string> ask(const std::string& prompt, const EnhanceOptions& options);

 private:
  bool cached(const std::string& key, std::string& text);
  void remember(const std::string& key, const std::string& text);
  const Config& config_;
  Jobs* jobs_;
  std::string api_key_;
  std::mutex mutex_;
  std::list<std::pair<std::string, std::string>> cache_;  // newest first
  TaskThreads threads_{2};
};

}  // namespace danqing::server
