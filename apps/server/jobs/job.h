// A job: what was asked, how far it is, what came of it.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "danqing/engine.h"

namespace danqing::server {

enum class Status { queued, running, done, failed, cancelled };
std::string_view name(Status s);
std::optional<Status> parse_status(std::string_view text);
inline bool is_final(Status s) { return s != Status::queued && s != Status::running; }

/// How a finished picture is kept and handed out.
struct OutputOptions {
  ImageFormat format = ImageFormat::png;
  int quality = 95;
};

/// Everything needed to draw it again; kept as JSON in the database. Seeds are drawn when the job is accepted, so that
/// a run after a crash draws the same pictures.
struct JobSpec {
  std::string model;
  GenerateRequest request;
  OutputOptions output;
  int priority = 0;
  double deadline_seconds = 0;
  bool external_enhancer = false;
  std::string init_image;  ///< the file of a picture to start from; empty = none. `request` holds none until it runs
  int images() const { return static_cast<int>(request.prompts.size()) * request.images_per_prompt; }
};
/// The request as the engine takes it, the given picture decoded. Errors: bad_input, does_not_fit.
Result<GenerateRequest> with_init_image(const JobSpec& spec, GenerateRequest request);
/// As it is kept: with the given picture in base64.
Json to_json(const JobSpec& spec);
/// As a client reads it: of a given picture only its size.
Json to_view(const JobSpec& spec);
Result<JobSpec> spec_from_json(const Json& json);

/// One finished picture as the database knows it.
struct Picture {
  std::string job;
  int64_t id = 0;  ///< grows; the gallery's cursor
  int n = 0;       ///< within the job, from 0
  uint64_t seed = 0;
  int width = 0, height = 0;
  uint64_t bytes = 0;
  double created = 0;
  std::string model;
  Json settings;  ///< the picture's "danqing" metadata
};

/// A job at rest: what the database holds.
struct JobRecord {
  int64_t seq = 0;
  std::string id, key, trace_id, idempotency_key, request_hash;
  Status status = Status::queued;
  double created = 0, started = 0, finished = 0;  ///< seconds since 1970; 0 = not yet
  int attempts = 0;
  JobSpec spec;
  std::vector<std::string> notes;
  std::string error_code, error_message;
  Json timing;
};

double now_seconds();
std::string new_job_id();
/// Ids are made by us: 'job_' and 24 hex digits. Anything else is not a job.
bool is_job_id(std::string_view text);

}  // namespace danqing::server
