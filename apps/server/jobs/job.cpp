#include "server/jobs/job.h"

#include <algorithm>
#include <chrono>

#include "base/try.h"
#include "server/auth/crypto.h"
#include "server/http/http.h"

namespace danqing::server {

std::string_view name(Status s) {
  switch (s) {
    case Status::queued: return "queued";
    case Status::running: return "running";
    case Status::done: return "done";
    case Status::failed: return "failed";
    case Status::cancelled: return "cancelled";
  }
  return "";
}

std::optional<Status> parse_status(std::string_view text) {
  for (const Status s : {Status::queued, Status::running, Status::done, Status::failed, Status::cancelled})
    if (name(s) == text) return s;
  return {};
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string new_job_id() { return "job_" + random_hex(12); }

bool is_job_id(std::string_view t) {
  return t.size() == 28 && t.substr(0, 4) == "job_" &&
         std::all_of(t.begin() + 4, t.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

Json to_json(const JobSpec& s) {
  const GenerateRequest& r = s.request;
  Json j{{"model", s.model},
         {"prompts", r.prompts},
         {"negative_prompts", r.negative_prompts},
         {"width", r.width},
         {"height", r.height},
         {"sampler", r.sampler},
         {"images_per_prompt", r.images_per_prompt},
         {"seeds", r.seeds},
         {"single_generator", r.one_stream},
         {"noise", r.cuda_noise ? "cuda" : "cpu"},
         {"batch_size", r.batch_size},
         {"enhance", r.enhancer == EnhancerMode::on    ? Json(true)
                     : r.enhancer == EnhancerMode::off ? Json(false)
                                                       : Json("auto")},
         {"enhancer",
          {{"temperature", r.enhance.temperature},
           {"top_p", r.enhance.top_p},
           {"top_k", r.enhance.top_k},
           {"max_new_tokens", r.enhance.max_new_tokens}}},
         {"output_format", s.output.format == ImageFormat::png    ? "png"
                           : s.output.format == ImageFormat::jpeg ? "jpeg"
                                                                  : "webp"},
         {"output_compression", s.output.quality},
         {"priority", s.priority},
         {"deadline_seconds", s.deadline_seconds}};
  if (r.enhance.seed) j["enhancer"]["seed"] = *r.enhance.seed;
  if (r.num_inference_steps) j["num_inference_steps"] = *r.num_inference_steps;
  if (r.guidance_scale) j["guidance_scale"] = *r.guidance_scale;
  if (r.shift) j["shift"] = *r.shift;
  if (r.cfg_normalization) j["cfg_normalization"] = *r.cfg_normalization;
  if (r.cfg_truncation) j["cfg_truncation"] = *r.cfg_truncation;
  if (!r.revised_prompts.empty()) j["revised_prompts"] = r.revised_prompts;
  if (s.external_enhancer) j["external_enhancer"] = true;
  if (!s.init_image.empty()) {
    j["init_image"] = base64(s.init_image);
    j["strength"] = r.strength;
  }
  return j;
}

Json to_view(const JobSpec& s) {
  Json j = to_json(s);
  if (!s.init_image.empty()) j["init_image"] = {{"bytes", s.init_image.size()}};
  return j;
}

Result<GenerateRequest> with_init_image(const JobSpec& spec, GenerateRequest request) {
  if (spec.init_image.empty()) return request;
  DQ_TRY(request.init_image, decode_image(spec.init_image));
  return request;
}

// Our own JSON, but from a file: a damaged one must not throw past here.
Result<JobSpec> spec_from_json(const Json& j) {
  try {
    JobSpec s;
    GenerateRequest& r = s.request;
    s.model = j.at("model").get<std::string>();
    r.prompts = j.at("prompts").get<std::vector<std::string>>();
    r.negative_prompts = j.at("negative_prompts").get<std::vector<std::string>>();
    r.width = j.at("width").get<int>();
    r.height = j.at("height").get<int>();
    r.sampler = j.at("sampler").get<std::string>();
    r.images_per_prompt = j.at("images_per_prompt").get<int>();
    r.seeds = j.at("seeds").get<std::vector<uint64_t>>();
    r.one_stream = j.at("single_generator").get<bool>();
    r.cuda_noise = j.at("noise").get<std::string>() == "cuda";
    r.batch_size = j.at("batch_size").get<int>();
    const Json& enhance = j.at("enhance");
    r.enhancer = !enhance.is_boolean() ? EnhancerMode::automatic
                 : enhance.get<bool>() ? EnhancerMode::on
                                       : EnhancerMode::off;
    const Json& e = j.at("enhancer");
    r.enhance.temperature = e.at("temperature").get<float>();
    r.enhance.top_p = e.at("top_p").get<float>();
    r.enhance.top_k = e.at("top_k").get<int>();
    r.enhance.max_new_tokens = e.at("max_new_tokens").get<int>();
    if (e.contains("seed")) r.enhance.seed = e["seed"].get<uint64_t>();
    const auto format = j.at("output_format").get<std::string>();
    s.output.format = format == "jpeg" ? ImageFormat::jpeg : format == "webp" ? ImageFormat::webp : ImageFormat::png;
    s.output.quality = j.at("output_compression").get<int>();
    s.priority = j.at("priority").get<int>();
    s.deadline_seconds = j.at("deadline_seconds").get<double>();
    if (j.contains("num_inference_steps")) r.num_inference_steps = j["num_inference_steps"].get<int>();
    if (j.contains("guidance_scale")) r.guidance_scale = j["guidance_scale"].get<float>();
    if (j.contains("shift")) r.shift = j["shift"].get<float>();
    if (j.contains("cfg_normalization")) r.cfg_normalization = j["cfg_normalization"].get<float>();
    if (j.contains("cfg_truncation")) r.cfg_truncation = j["cfg_truncation"].get<float>();
    if (j.contains("revised_prompts")) r.revised_prompts = j["revised_prompts"].get<std::vector<std::string>>();
    s.external_enhancer = j.value("external_enhancer", false);
    if (j.contains("init_image")) {
      if (!base64_decode(j["init_image"].get<std::string>(), s.init_image))
        return bad_input("[jobs] a stored job cannot be read: its picture is damaged");
      r.strength = j.at("strength").get<double>();
    }
    return s;
  } catch (const std::exception& e) {
    return bad_input("[jobs] a stored job cannot be read: {}", e.what());
  }
}

}  // namespace danqing::server
