// Admission, what a job looks like as JSON, waiting for one.
#include <algorithm>
#include <random>

#include "base/text.h"
#include "base/try.h"
#include "pipeline/settings.h"
#include "server/api/app.h"
#include "server/auth/crypto.h"

namespace danqing::server {

std::string_view mime_type(ImageFormat f) {
  return f == ImageFormat::png ? "image/png" : f == ImageFormat::jpeg ? "image/jpeg" : "image/webp";
}

std::string sse(const std::string& event, const Json& data) {
  return "event: " + event + "\ndata: " + dump_json(data) + "\n\n";
}

Api<JobRecord> admit(App& app, const Request& request, JobSpec spec) {
  const Config& c = app.config;
  GenerateRequest& r = spec.request;
  const std::string asked = spec.model;
  spec.model = app.models->resolve(asked);
  if (spec.model.empty())
    return ApiError{404, "model_not_found",
                    fmt::format("[model] there is no model '{}' (GET /v1/models lists them)", one_line(asked, 60)),
                    "model"};
  const std::shared_ptr<Engine> engine = app.models->find(spec.model);
  const ModelInfo& info = engine->info();
  if (!r.guidance_scale && c.guidance_scale >= 0) r.guidance_scale = static_cast<float>(c.guidance_scale);
  if (r.images_per_prompt < 1 || spec.images() > c.max_images || r.prompts.size() > static_cast<size_t>(c.max_images))
    return ApiError{413, "too_many_images", fmt::format("[limits] expected at most {} pictures in a job", c.max_images),
                    "n"};
  for (const auto* list : {&r.prompts, &r.negative_prompts, &r.revised_prompts})
    for (const std::string& p : *list)
      if (p.size() > static_cast<size_t>(c.max_prompt_bytes))
        return ApiError{
            413, "prompt_too_long",
            fmt::format("[limits] expected prompts of at most {} bytes, got {}", c.max_prompt_bytes, p.size()),
            "prompt"};
  // Decoded for the checks only: a job that waits keeps the file.
  auto checked = with_init_image(spec, r);
  if (!checked) {
    const bool large = checked.error().code == ErrorCode::does_not_fit;
    return ApiError{large ? 413 : 422, large ? "too_large" : "not_a_picture", checked.error().message, "init_image"};
  }
  if (checked->init_image.width > 0) {
    if (!r.width) r.width = checked->width = in_multiples(info, checked->init_image.width);
    if (!r.height) r.height = checked->height = in_multiples(info, checked->init_image.height);
  }
  const int width = r.width ? r.width : info.defaults.width, height = r.height ? r.height : info.defaults.height;
  if (std::max(width, height) > c.max_side ||
      static_cast<uint64_t>(width) * static_cast<uint64_t>(height) > app.max_pixels)
    return ApiError{413, "too_large",
                    fmt::format("[limits] expected at most {} pixels a side and {} in all, got {}x{}", c.max_side,
                                app.max_pixels, width, height),
                    "size"};
  if (r.num_inference_steps.value_or(info.defaults.num_inference_steps) > c.max_steps)
    return ApiError{413, "too_many_steps",
                    fmt::format("[limits] expected at most {} steps, got {}", c.max_steps,
                                r.num_inference_steps.value_or(info.defaults.num_inference_steps)),
                    "num_inference_steps"};
  const bool may_be_external = app.enhancer->external();
  const bool wanted =
      r.enhancer == EnhancerMode::on || (r.enhancer == EnhancerMode::automatic && info.defaults.prompt_enhancer);
  if (may_be_external && wanted && r.revised_prompts.empty() &&
      (spec.external_enhancer || !info.has_prompt_enhancer || r.enhancer == EnhancerMode::on))
    spec.external_enhancer = true;
  else if (spec.external_enhancer)
    return ApiError{422, "no_external_enhancer", "[enhance] this server has no external enhancer (--enhancer-url)",
                    "enhancer"};
  if (spec.external_enhancer) checked->enhancer = EnhancerMode::off;
  if (auto ok = engine->check(*checked); !ok) return to_api(ok.error());
  // What can never fit is refused now, not after its turn has come. Of other machines' cards nothing is known here.
  if (auto plan = c.queue.empty() ? engine->plan(*checked) : Result<MemoryPlan>(MemoryPlan()); !plan)
    return to_api(plan.error());
  // Seeds are drawn now, so that a run after a crash draws the same pictures. 32 bits: every client can hold them.
  if (r.seeds.empty()) r.seeds.push_back(std::random_device{}());
  if (!r.one_stream && r.seeds.size() == 1)
    for (int i = 1; i < spec.images(); ++i) r.seeds.push_back(r.seeds[0] + static_cast<uint64_t>(i));
  if (spec.deadline_seconds <= 0) spec.deadline_seconds = c.deadline_seconds;
  JobRecord record;
  record.key = request.caller.name;
  record.trace_id = request.trace_id;
  record.idempotency_key = request.header("idempotency-key").substr(0, 255);
  record.request_hash = sha256_hex(request.path + "\n" + request.body);
  record.spec = std::move(spec);
  return record;
}

std::string signature(App& app, const std::string& job, int n) {
  return hmac_hex(app.store->secret(), fmt::format("{}/{}", job, n)).substr(0, 32);
}

bool good_signature(App& app, const Request& r, const std::string& job, int n) {
  const auto it = r.query.find("sig");
  return it != r.query.end() && equal_secrets(it->second, signature(app, job, n));
}

std::string picture_url(App& app, const std::string& job, int n, const std::string& extension) {
  std::string url = fmt::format("/v1/jobs/{}/images/{}.{}", job, n, extension);
  if (!app.keys.open()) url += "?sig=" + signature(app, job, n);
  return url;
}

Json picture_json(App& app, const Picture& p) {
  const char* extension = "png";
  Json j{
      {"job", p.job},       {"n", p.n},         {"id", p.id},           {"seed", p.seed},   {"width", p.width},
      {"height", p.height}, {"bytes", p.bytes}, {"created", p.created}, {"model", p.model}, {"settings", p.settings}};
  j["url"] = picture_url(app, p.job, p.n, extension);
  j["thumbnail"] = picture_url(app, p.job, p.n, "thumb");
  if (p.settings.is_object() && p.settings.contains("revised_prompt"))
    j["revised_prompt"] = p.settings["revised_prompt"];
  if (p.settings.is_object() && p.settings.contains("prompt")) j["prompt"] = p.settings["prompt"];
  return j;
}

Json job_json(App& app, const JobView& v) {
  const JobRecord& r = v.record;
  Json j{{"id", r.id},
         {"object", "job"},
         {"status", std::string(name(r.status))},
         {"model", r.spec.model},
         {"created", r.created},
         {"started", r.started > 0 ? Json(r.started) : Json()},
         {"finished", r.finished > 0 ? Json(r.finished) : Json()},
         {"request", to_view(r.spec)},
         {"notes", r.notes},
         {"trace_id", r.trace_id}};
  j["progress"] = v.progress;
  j["position"] = v.position > 0 ? Json(v.position) : Json();
  j["images"] = Json::array();
  for (const Picture& p : v.pictures) j["images"].push_back(picture_json(app, p));
  j["error"] = r.error_code.empty() ? Json() : Json{{"code", r.error_code}, {"message", r.error_message}};
  j["seconds"] = r.timing.is_object() && !r.timing.empty() ? r.timing : Json();
  if (j["seconds"].contains("energy")) {
    j["energy"] = j["seconds"]["energy"];
    j["seconds"].erase("energy");
  }
  return j;
}

ApiError job_error(const JobView& v) {
  const JobRecord& r = v.record;
  if (r.status == Status::cancelled) return {409, "cancelled", "[jobs] the job was cancelled"};
  const int status = r.error_code == "does_not_fit"        ? 413
                     : r.error_code == "invalid_value"     ? 422
                     : r.error_code == "device_lost"       ? 503
                     : r.error_code == "deadline_exceeded" ? 504
                                                           : 500;
  return {status, r.error_code, r.error_message};
}

void wait_for_job(App& app, const ExchangePtr& exchange, const std::string& id,
                  std::function<void(const JobView&)> done) {
  const std::weak_ptr<Exchange> weak = exchange;
  auto finish = std::make_shared<std::function<void()>>([&app, exchange, id, done = std::move(done)] {
    const auto view = app.jobs->view(id);
    if (view) return done(*view);
    exchange->respond(error_response({500, "failed", "[jobs] the job's end could not be stored"}));
  });
  exchange->on_closed([&app, id] { app.pool->post([&app, id] { app.jobs->cancel(id); }); });
  const int token = app.jobs->subscribe(id, false, [&app, finish](const Event& e) {
    if (e.final && *finish) app.pool->post([f = *finish] { f(); });
  });
  if (token == 0) app.pool->post([f = *finish] { f(); });  // ended already
}

Result<std::string> picture_as(App& app, const std::string& job, int n, ImageFormat format,
                               std::optional<int> quality) {
  DQ_TRY(std::string bytes, app.jobs->picture_bytes(job, n));
  const ImageFormat stored = bytes.compare(0, 4, "\x89PNG") == 0 ? ImageFormat::png
                             : bytes.compare(0, 4, "RIFF") == 0  ? ImageFormat::webp
                                                                 : ImageFormat::jpeg;
  if (stored == format && !quality) return bytes;
  DQ_TRY(const Image image, decode_image(bytes));
  DQ_TRY(const ImageMetadata metadata, read_image_metadata(bytes));
  return encode_image(image, format, metadata, {quality.value_or(95)});
}

}  // namespace danqing::server
