// The part of AUTOMATIC1111's API that clients really call (Open WebUI, SillyTavern, ...).
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/try.h"
#include "server/api/app.h"
#include "server/api/job_request.h"

namespace danqing::server {
namespace {

/// Which model a caller chose by POST options.
struct Choices {
  std::mutex mutex;
  std::map<std::string, std::string> model;
};
Choices& choices() {
  static Choices c;
  return c;
}

std::string chosen_model(App& app, const Caller& caller) {
  const std::lock_guard lock(choices().mutex);
  const auto it = choices().model.find(caller.name);
  return it != choices().model.end() ? it->second : app.models->resolve("");
}

/// Clients may say "name [hash]" or "name.safetensors".
std::string plain_name(std::string s) {
  s = s.substr(0, s.find(" ["));
  for (const char* end : {".safetensors", ".gguf"}) {
    const std::string e(end);
    if (s.size() > e.size() && s.compare(s.size() - e.size(), e.size(), e) == 0) s.resize(s.size() - e.size());
  }
  return s;
}

void get_options(App& app, const ExchangePtr& e) {
  e->respond(json_response({{"sd_model_checkpoint", chosen_model(app, e->request.caller)},
                            {"sd_checkpoint_hash", ""},
                            {"sd_vae", "Automatic"},
                            {"samples_format", "png"},
                            {"CLIP_stop_at_last_layers", 1},
                            {"eta_noise_seed_delta", 0}}));
}

void set_options(App& app, const ExchangePtr& e) {
  auto f = Fields::parse(e->request);
  if (!f) return e->respond(sd_error_response(f.error()));
  if (const auto m = f->text("sd_model_checkpoint")) {
    const std::string model = app.models->resolve(plain_name(*m));
    if (model.empty())
      return e->respond(
          sd_error_response({404, "model_not_found", fmt::format("[model] there is no model '{}'", one_line(*m, 60))}));
    const std::lock_guard lock(choices().mutex);
    choices().model[e->request.caller.name] = model;
  }
  if (f->error()) return e->respond(sd_error_response(*f->error()));
  e->respond({200, "application/json", "null", {}});
}

int snapped(int64_t side, int multiple) {
  return std::max(multiple, static_cast<int>(std::lround(static_cast<double>(side) / multiple)) * multiple);
}

/// The "parameters" text of a picture, as A1111 writes it.
std::string info_text(App& app, const Picture& p, const std::string& bytes) {
  (void)app;
  const auto metadata = read_image_metadata(bytes);
  if (metadata)
    if (const auto it = metadata->find("parameters"); it != metadata->end()) return it->second;
  return fmt::format("Seed: {}", p.seed);
}

void answer(App& app, const ExchangePtr& e, const Json& asked, bool send_images, const JobView& v) {
  if (v.record.status == Status::failed) return e->respond(sd_error_response(job_error(v)));
  const GenerateRequest& r = v.record.spec.request;
  Json images = Json::array(), texts = Json::array(), seeds = Json::array(), prompts = Json::array(),
       negatives = Json::array();
  int width = r.width, height = r.height, steps = r.num_inference_steps.value_or(0);
  double guidance = r.guidance_scale.value_or(0), strength = 0;
  const std::string negative = r.negative_prompts.empty() ? "" : r.negative_prompts[0];
  for (const Picture& p : v.pictures) {
    const auto bytes = app.jobs->picture_bytes(p.job, p.n);
    if (!bytes) continue;
    if (send_images) images.push_back(base64(*bytes));
    texts.push_back(info_text(app, p, *bytes));
    seeds.push_back(p.seed);
    prompts.push_back(p.settings.value("prompt", r.prompts[0]));
    negatives.push_back(negative);
    width = p.width, height = p.height;
    steps = p.settings.value("num_inference_steps", steps);
    guidance = p.settings.value("guidance_scale", guidance);
    strength = p.settings.value("strength", strength);  // the job has let go of its picture by now
  }
  const char* sampler = r.sampler == "heun" ? "Heun" : "Euler";
  const Json info{{"prompt", r.prompts[0]},
                  {"all_prompts", prompts},
                  {"negative_prompt", negative},
                  {"all_negative_prompts", negatives},
                  {"seed", seeds.empty() ? Json(r.seeds[0]) : seeds[0]},
                  {"all_seeds", seeds},
                  {"subseed", 0},
                  {"all_subseeds", Json::array()},
                  {"subseed_strength", 0},
                  {"width", width},
                  {"height", height},
                  {"sampler_name", sampler},
                  {"cfg_scale", guidance},
                  {"steps", steps},
                  {"batch_size", r.images_per_prompt},
                  {"restore_faces", false},
                  {"face_restoration_model", Json()},
                  {"sd_model_name", v.record.spec.model},
                  {"sd_model_hash", ""},
                  {"seed_resize_from_w", -1},
                  {"seed_resize_from_h", -1},
                  {"denoising_strength", strength},
                  {"extra_generation_params", Json::object()},
                  {"index_of_first_image", 0},
                  {"infotexts", texts},
                  {"styles", Json::array()},
                  {"job_timestamp", std::to_string(static_cast<int64_t>(v.record.created))},
                  {"clip_skip", 1},
                  {"is_using_inpainting_conditioning", false},
                  {"notes", v.record.notes}};
  e->respond(json_response({{"images", images}, {"parameters", asked}, {"info", dump_json(info)}}));
}

/// img2img's picture to start from.
void take_image(Fields& f, JobSpec& s) {
  const Json* images = f.any("init_images");
  if (!images || !images->is_array() || images->size() != 1 || !(*images)[0].is_string() ||
      !base64_decode((*images)[0].get<std::string>(), s.init_image) || s.init_image.empty())
    return f.refuse({422, "invalid_value", "[img2img] init_images expected one picture in base64", "init_images"});
  if (f.any("mask")) f.refuse({422, "not_available", "[img2img] masks are not available for this model", "mask"});
  s.request.strength = f.number("denoising_strength", 0, 1).value_or(0.75);
  if (s.request.strength == 0) f.wrong("denoising_strength", "a number above 0, up to 1");
}

void draw(App& app, const ExchangePtr& e, bool from_image) {
  auto fields = Fields::parse(e->request);
  if (!fields) return e->respond(sd_error_response(fields.error()));
  Fields& f = *fields;
  JobSpec s;
  GenerateRequest& r = s.request;
  if (from_image) take_image(f, s);
  r.prompts = {f.text("prompt").value_or("")};
  if (const auto v = f.text("negative_prompt")) r.negative_prompts = {*v};
  s.model = chosen_model(app, e->request.caller);
  if (const auto v = f.object("override_settings"))
    if (v->contains("sd_model_checkpoint") && (*v)["sd_model_checkpoint"].is_string())
      s.model = plain_name((*v)["sd_model_checkpoint"].get<std::string>());
  const auto engine = app.models->find(s.model);
  if (!engine)
    return e->respond(sd_error_response(
        {404, "model_not_found", fmt::format("[model] there is no model '{}'", one_line(s.model, 60))}));
  const ModelInfo& info = engine->info();
  // These clients send sizes without asking what the model can do: the nearest one that it can.
  if (const auto v = f.integer("width", 1, 65536)) r.width = snapped(*v, info.size_multiple);
  if (const auto v = f.integer("height", 1, 65536)) r.height = snapped(*v, info.size_multiple);
  if (const auto v = f.integer("steps", 0, 10000)) r.num_inference_steps = static_cast<int>(*v);
  if (const auto v = f.number("cfg_scale", -1000, 1000)) r.guidance_scale = static_cast<float>(*v);
  if (const auto v = f.integer("seed", -1, int64_t{1} << 53); v && *v >= 0) r.seeds = {static_cast<uint64_t>(*v)};
  for (const char* key : {"sampler_index", "sampler_name"})
    if (auto v = f.text(key)) {
      std::transform(v->begin(), v->end(), v->begin(), [](unsigned char c) { return std::tolower(c); });
      r.sampler = *v == "heun" ? "heun" : "euler";  // other names mean samplers of other models
    }
  const int64_t batch = f.integer("batch_size", 1, 64).value_or(1), rounds = f.integer("n_iter", 1, 64).value_or(1);
  r.images_per_prompt = static_cast<int>(batch * rounds);
  const bool send_images = f.boolean("send_images").value_or(true);
  if (const auto v = f.boolean("enhance")) r.enhancer = *v ? EnhancerMode::on : EnhancerMode::off;
  if (f.error()) return e->respond(sd_error_response(*f.error()));
  auto record = admit(app, e->request, std::move(s));
  if (!record) return e->respond(sd_error_response(record.error()));
  auto submitted = app.jobs->submit(std::move(*record), [&](const LivePtr& j) { app.enhancer->prepare(j); });
  if (!submitted) return e->respond(sd_error_response(submitted.error()));
  Json asked = f.json();
  asked.erase("init_images");  // as A1111 answers, without the pictures that were sent
  wait_for_job(app, e, submitted->record.id, [&app, e, asked = std::move(asked), send_images](const JobView& v) {
    answer(app, e, asked, send_images, v);
  });
}

/// The caller's job that runs now, or waits first.
std::optional<JobView> current(App& app, const Caller& caller) {
  auto all = app.jobs->active(caller);
  if (all.empty()) return {};
  return std::move(all[0]);
}

void progress(App& app, const ExchangePtr& e) {
  const auto v = current(app, e->request.caller);
  double fraction = 0, eta = 0;
  int step = 0, steps = 0;
  if (v && v->progress.is_object()) {
    step = v->progress.value("step", 0), steps = v->progress.value("steps", 0),
    eta = v->progress.value("eta_seconds", 0.0);
    if (v->progress.value("stage", "") == "denoise" && steps > 0) fraction = static_cast<double>(step) / steps;
    if (v->progress.value("stage", "") == "decode") fraction = 0.99;
  }
  e->respond(json_response({{"progress", fraction},
                            {"eta_relative", eta},
                            {"state",
                             {{"skipped", false},
                              {"interrupted", false},
                              {"stopping_generation", app.stopping.load()},
                              {"job", v ? v->record.id : ""},
                              {"job_count", v ? 1 : 0},
                              {"job_no", 0},
                              {"job_timestamp", v ? std::to_string(static_cast<int64_t>(v->record.created)) : "0"},
                              {"sampling_step", step},
                              {"sampling_steps", steps}}},
                            {"current_image", Json()},
                            {"textinfo", Json()}}));
}

void interrupt(App& app, const ExchangePtr& e) {
  for (const JobView& v : app.jobs->active(e->request.caller))
    if (v.record.status == Status::running && v.record.key == e->request.caller.name) app.jobs->cancel(v.record.id);
  e->respond({200, "application/json", "null", {}});
}

void png_info(App&, const ExchangePtr& e) {
  auto f = Fields::parse(e->request);
  if (!f) return e->respond(sd_error_response(f.error()));
  const auto text = f->text("image");
  std::string bytes;
  if (!text || !base64_decode(*text, bytes))
    return e->respond(sd_error_response({422, "invalid_value", "[request] image expected a picture in base64"}));
  const auto metadata = read_image_metadata(bytes);
  if (!metadata) return e->respond(sd_error_response({422, "not_a_picture", metadata.error().message}));
  Json items = Json::object();
  for (const auto& [key, value] : *metadata) items[key] = value;
  const auto it = metadata->find("parameters");
  e->respond(json_response(
      {{"info", it == metadata->end() ? "" : it->second}, {"items", items}, {"parameters", Json::object()}}));
}

void memory(App& app, const ExchangePtr& e) {
  const monitor::HostReading host = app.monitor.last().host;
  const monitor::CardReading own = app.monitor.card();
  const DeviceStatus d = app.models->device();
  const auto memory_json = [](uint64_t used, uint64_t total) {
    used = std::min(used, total);
    return Json{{"free", total - used}, {"used", used}, {"total", total}};
  };
  const uint64_t total = host.memory_total.value_or(0), free = host.memory_available.value_or(0);
  e->respond(json_response(
      {{"ram", memory_json(total - std::min(free, total), total)},
       {"cuda",
        {{"system", memory_json(own.vram_used.value_or(d.allocated), own.vram_total.value_or(d.memory_total))},
         {"active", {{"current", d.allocated}, {"peak", d.peak_allocated}}}}}}));
}

}  // namespace

void add_a1111(App& app) {
  const auto route = [&](const char* method, const char* name, std::function<void(App&, const ExchangePtr&)> f) {
    app.router.add({method, std::string("/sdapi/v1/") + name, Access::key,
                    [&app, f = std::move(f)](const ExchangePtr& e) { f(app, e); }, false});
  };
  const auto fixed = [&](const char* name, const Json& body) {
    route("GET", name, [body](App&, const ExchangePtr& e) { e->respond(json_response(body)); });
  };
  route("GET", "options", get_options);
  route("POST", "options", set_options);
  route("POST", "txt2img", [](App& a, const ExchangePtr& e) { draw(a, e, false); });
  route("POST", "img2img", [](App& a, const ExchangePtr& e) { draw(a, e, true); });
  route("GET", "progress", progress);
  route("POST", "interrupt", interrupt);
  route("POST", "skip", interrupt);
  route("POST", "png-info", png_info);
  route("GET", "memory", memory);
  route("GET", "sd-models", [](App& a, const ExchangePtr& e) {
    Json list = Json::array();
    for (const ModelState& m : a.models->list())
      list.push_back({{"title", m.name},
                      {"model_name", m.name},
                      {"hash", Json()},
                      {"sha256", Json()},
                      {"filename", m.name},
                      {"config", Json()}});
    e->respond(json_response(list));
  });
  fixed("samplers",
        Json::parse(
            R"([{"name":"Euler","aliases":["euler"],"options":{}},{"name":"Heun","aliases":["heun"],"options":{}}])"));
  fixed(
      "schedulers",
      Json::parse(
          R"([{"name":"automatic","label":"Automatic","aliases":null,"default_rho":-1.0,"need_inner_model":false}])"));
  fixed("upscalers",
        Json::parse(R"([{"name":"None","model_name":null,"model_path":null,"model_url":null,"scale":4.0}])"));
  for (const char* empty : {"latent-upscale-modes", "sd-vae", "loras", "hypernetworks", "embeddings", "prompt-styles"})
    fixed(empty, std::string(empty) == "embeddings" ? Json{{"loaded", Json::object()}, {"skipped", Json::object()}}
                                                    : Json::array());
  route("POST", "refresh-checkpoints", [](App&, const ExchangePtr& e) {
    e->respond({200, "application/json", "null", {}});
  });
}

}  // namespace danqing::server
