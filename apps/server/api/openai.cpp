// OpenAI's images API: POST /v1/images/generations (streaming partial images too), GET /v1/models.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/try.h"
#include "base/units.h"
#include "image/convert.h"
#include "server/api/app.h"
#include "server/api/job_request.h"
#include "server/http/multipart.h"

namespace danqing::server {
namespace {

constexpr double kCloseStrength = 0.4, kFarStrength = 0.75;  // of input_fidelity high and low

struct Wanted {
  JobSpec spec;
  bool stream = false, url = false;
  int partial_images = 0;
  std::string events = "image_generation";  ///< of a stream; "image_edit" for edits
  std::string quality = "auto", background = "opaque", format = "png";
  std::vector<std::string> warnings;
};

Api<Wanted> parse(Fields& f) {
  Wanted w;
  GenerateRequest& r = w.spec.request;
  const auto prompt = f.text("prompt");
  if (!prompt && !f.error()) f.wrong("prompt", "text");
  if (prompt) r.prompts = {*prompt};
  read_common(f, w.spec);
  if (const auto v = f.text("model")) w.spec.model = *v;
  if (const auto v = f.integer("n", 1, 10)) r.images_per_prompt = static_cast<int>(*v);
  if (const auto v = f.text("size"); v && *v != "auto") {
    if (auto size = parse_size(*v))
      std::tie(r.width, r.height) = *size;
    else
      f.wrong("size", "auto or WIDTHxHEIGHT");
  }
  if (const auto v = f.choice("quality", {"auto", "low", "medium", "high", "standard", "hd"})) w.quality = *v;
  if (w.quality != "auto") w.warnings.push_back("quality has no effect here; num_inference_steps has");
  if (f.choice("style", {"vivid", "natural"})) w.warnings.push_back("style has no effect here; say it in the prompt");
  if (const auto v = f.choice("background", {"auto", "opaque", "transparent"}); v && *v == "transparent")
    f.refuse(
        {422, "invalid_value", "[request] background 'transparent' is not possible with this model", "background"});
  if (const auto v = f.choice("moderation", {"auto", "low"}); v && *v == "low")
    w.warnings.push_back("moderation has no effect: there is none here");
  const auto compression = f.integer("output_compression", 0, 100);
  if (const auto v = f.choice("output_format", {"png", "jpeg", "webp"})) w.format = *v;
  w.spec.output.format = w.format == "jpeg"   ? ImageFormat::jpeg
                         : w.format == "webp" ? ImageFormat::webp
                                              : ImageFormat::png;
  if (compression) w.spec.output.quality = std::max(1, static_cast<int>(*compression));
  if (const auto v = f.choice("response_format", {"url", "b64_json"})) w.url = *v == "url";
  if (const auto v = f.boolean("stream")) w.stream = *v;
  if (const auto v = f.integer("partial_images", 0, 3)) w.partial_images = static_cast<int>(*v);
  if (w.stream && w.url)
    f.refuse({422, "invalid_value", "[request] response_format url is not possible with stream", "response_format"});
  f.ignore({"user"});
  if (f.error()) {
    ApiError e = *f.error();
    if (e.status == 422) e.status = 400;  // as OpenAI answers a wrong value
    return e;
  }
  for (const std::string& u : f.unknown()) w.warnings.push_back(u);
  return w;
}

// Tokens are counted by nobody here; clients expect the fields.
Json usage() {
  return {{"total_tokens", 0},
          {"input_tokens", 0},
          {"output_tokens", 0},
          {"input_tokens_details", {{"image_tokens", 0}, {"text_tokens", 0}}}};
}

std::string size_text(const JobView& v) {
  return v.pictures.empty() ? "auto" : fmt::format("{}x{}", v.pictures[0].width, v.pictures[0].height);
}

std::string base_url(const Request& r) {
  const std::string proto = r.header("x-forwarded-proto") == "https" ? "https://" : "http://";
  return proto + r.header("host");
}

void answer(App& app, const ExchangePtr& e, const Wanted& w, const JobView& v) {
  if (v.record.status != Status::done) return e->respond(error_response(job_error(v)));
  Json data = Json::array();
  for (const Picture& p : v.pictures) {
    Json d;
    if (w.url) {
      d["url"] = base_url(e->request) + picture_url(app, p.job, p.n, w.format);
    } else {
      const auto bytes = app.jobs->picture_bytes(p.job, p.n);
      if (!bytes) return e->respond(error_response({500, "failed", bytes.error().message}));
      d["b64_json"] = base64(*bytes);
    }
    d["seed"] = p.seed;
    if (p.settings.is_object() && p.settings.contains("revised_prompt"))
      d["revised_prompt"] = p.settings["revised_prompt"];
    data.push_back(std::move(d));
  }
  Json j{{"created", static_cast<int64_t>(v.record.created)},
         {"data", data},
         {"background", w.background},
         {"output_format", w.format},
         {"size", size_text(v)},
         {"quality", w.quality},
         {"usage", usage()},
         {"id", v.record.id}};
  std::vector<std::string> warnings = w.warnings;
  warnings.insert(warnings.end(), v.record.notes.begin(), v.record.notes.end());
  if (!warnings.empty()) j["warnings"] = warnings;
  e->respond(json_response(j));
}

/// Streams: which previews become partial images, evenly over the steps.
struct Partials {
  std::vector<int> sent;  // by picture
};

void stream_job(App& app, const ExchangePtr& e, const Wanted& w, const JobRecord& record, int steps) {
  e->begin_stream(200, "text/event-stream", {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}});
  app.keep_alive(e);
  const std::string id = record.id;
  const int width = record.spec.request.width, height = record.spec.request.height;
  const auto common = [w, created = static_cast<int64_t>(record.created)](Json j, const std::string& size) {
    j["created_at"] = created;
    j["size"] = size;
    j["quality"] = w.quality;
    j["background"] = w.background;
    j["output_format"] = w.format;
    return j;
  };
  const auto end = [&app, e, w, id, common] {
    const auto v = app.jobs->view(id);
    if (!v || v->record.status != Status::done) {
      const ApiError error = v ? job_error(*v) : ApiError{500, "failed", "[jobs] lost"};
      e->write(sse("error",
                   {{"type", "error"},
                    {"error",
                     {{"message", error.message}, {"type", "server_error"}, {"code", error.code}, {"param", Json()}}}}),
               false);
      return e->finish();
    }
    for (const Picture& p : v->pictures) {
      const auto bytes = app.jobs->picture_bytes(p.job, p.n);
      Json j = common({{"type", w.events + ".completed"},
                       {"b64_json", bytes ? base64(*bytes) : ""},
                       {"usage", usage()},
                       {"seed", p.seed},
                       {"image_index", p.n}},
                      size_text(*v));
      if (p.settings.is_object() && p.settings.contains("revised_prompt"))
        j["revised_prompt"] = p.settings["revised_prompt"];
      std::vector<std::string> warnings = w.warnings;
      warnings.insert(warnings.end(), v->record.notes.begin(), v->record.notes.end());
      if (!warnings.empty()) j["warnings"] = warnings;
      e->write(sse(w.events + ".completed", j), false);
    }
    e->finish();
  };
  const bool previews = w.partial_images > 0;
  auto partials = std::make_shared<Partials>();
  partials->sent.assign(static_cast<size_t>(record.spec.images()), 0);
  const int token =
      app.jobs->subscribe(id, previews, [&app, e, w, end, partials, steps, width, height, common](const Event& event) {
        if (event.final) return app.pool->post(end);
        if (event.type != "preview") return;
        int& sent = partials->sent[static_cast<size_t>(event.image)];
        const int step = event.data["step"].get<int>();
        if (sent >= w.partial_images || step < (sent + 1) * std::max(1, steps) / (w.partial_images + 1)) return;
        const Image& small = *event.preview;
        const int full_w = width ? width : small.width * 8, full_h = height ? height : small.height * 8;
        const auto large = resize_image(small, full_w, full_h);
        if (!large) return;
        const auto bytes = encode_image(*large, w.spec.output.format, {}, {std::min(w.spec.output.quality, 90)});
        if (!bytes) return;
        e->write(sse(w.events + ".partial_image", common({{"type", w.events + ".partial_image"},
                                                          {"b64_json", base64(*bytes)},
                                                          {"partial_image_index", sent},
                                                          {"image_index", event.image}},
                                                         fmt::format("{}x{}", full_w, full_h))),
                 false);
        ++sent;
      });
  if (token == 0) app.pool->post(end);
  e->on_closed([&app, id] { app.pool->post([&app, id] { app.jobs->cancel(id); }); });
}

void draw(App& app, const ExchangePtr& e, Fields& fields, const char* events) {
  auto wanted = parse(fields);
  if (!wanted) return e->respond(error_response(wanted.error()));
  wanted->events = events;
  auto record = admit(app, e->request, wanted->spec);
  if (!record) {
    ApiError error = record.error();
    if (error.status == 422) error.status = 400;
    return e->respond(error_response(error));
  }
  const int steps = record->spec.request.num_inference_steps.value_or(
      app.models->find(record->spec.model)->info().defaults.num_inference_steps);
  auto submitted = app.jobs->submit(std::move(*record), [&](const LivePtr& j) { app.enhancer->prepare(j); });
  if (!submitted) return e->respond(error_response(submitted.error()));
  if (wanted->stream) return stream_job(app, e, *wanted, submitted->record, steps);
  wait_for_job(app, e, submitted->record.id, [&app, e, w = *wanted](const JobView& v) { answer(app, e, w, v); });
}

/// `image` of an edit, one picture; what its other fields mean here.
void take_image(Fields& f) {
  const Json* image = f.any("image");
  if (image && image->is_array() && image->size() == 1) image = &(*image)[0];
  if (image && image->is_array())
    return f.refuse({400, "not_available", "[images] expected one picture to start from, got several", "image"});
  if (!image || !image->is_string()) return f.wrong("image", "a picture");
  if (f.any("mask")) f.refuse({400, "not_available", "[images] masks are not available for this model", "mask"});
  Json json = f.json();
  json["init_image"] = *image;
  json.erase("image");
  // OpenAI's word for how close to stay; `strength` says it exactly.
  const auto fidelity = f.choice("input_fidelity", {"low", "high"});
  if (fidelity && !json.contains("strength")) json["strength"] = *fidelity == "high" ? kCloseStrength : kFarStrength;
  json.erase("input_fidelity");
  if (f.error()) return;
  f = Fields(std::move(json));
}

void edits(App& app, const ExchangePtr& e) {
  auto fields = form_boundary(e->request.header("content-type")).empty()
                    ? Fields::parse(e->request)
                    : Fields::parse_form(e->request, {"prompt", "negative_prompt", "model", "user", "size"});
  if (!fields) return e->respond(error_response(fields.error()));
  take_image(*fields);
  draw(app, e, *fields, "image_edit");
}

void generations(App& app, const ExchangePtr& e) {
  auto fields = Fields::parse(e->request);
  if (!fields) return e->respond(error_response(fields.error()));
  draw(app, e, *fields, "image_generation");
}

void models(App& app, const ExchangePtr& e) {
  Json data = Json::array();
  for (const ModelState& m : app.models->list()) {
    Json parts = Json::array();
    for (const ComponentInfo& c : m.info.components)
      parts.push_back({{"role", c.role},
                       {"class", c.class_name},
                       {"dtypes", c.dtypes},
                       {"parameters", c.parameters},
                       {"bytes", c.bytes}});
    Json sizes = Json::array();
    for (const auto& [w, h] : m.info.defaults.suggested_sizes) sizes.push_back({w, h});
    const ModelDefaults& d = m.info.defaults;
    data.push_back({{"id", m.name},
                    {"object", "model"},
                    {"created", 0},
                    {"owned_by", "danqing"},
                    {"loaded", m.loaded},
                    {"bytes", m.bytes},
                    {"pipeline", m.info.pipeline_class},
                    {"has_prompt_enhancer", m.info.has_prompt_enhancer || app.enhancer->external()},
                    {"size_multiple", m.info.size_multiple},
                    {"components", parts},
                    {"defaults",
                     {{"width", d.width},
                      {"height", d.height},
                      {"num_inference_steps", d.num_inference_steps},
                      {"guidance_scale", d.guidance_scale},
                      {"shift", d.shift},
                      {"prompt_enhancer", d.prompt_enhancer},
                      {"sizes", sizes}}},
                    {"limits",
                     {{"max_side", app.config.max_side},
                      {"max_pixels", app.max_pixels},
                      {"max_steps", app.config.max_steps},
                      {"max_images", app.config.max_images}}}});
  }
  e->respond(json_response({{"object", "list"}, {"data", data}}));
}

void not_available(App&, const ExchangePtr& e) {
  e->respond(
      error_response({400, "not_available",
                      "[images] variations are not available for this model; images/edits starts from a picture"}));
}

}  // namespace

void add_openai(App& app) {
  const auto route = [&](const char* method, const char* pattern, void (*f)(App&, const ExchangePtr&)) {
    app.router.add({method, pattern, Access::key, [&app, f](const ExchangePtr& e) { f(app, e); }, false});
  };
  route("POST", "/v1/images/generations", generations);
  route("POST", "/v1/images/edits", edits);
  route("POST", "/v1/images/variations", not_available);
  route("GET", "/v1/models", models);
  route("GET", "/v1/models/{id}", [](App& a, const ExchangePtr& e) {
    const std::string name = a.models->resolve(e->request.params["id"]);
    if (name.empty())
      return e->respond(error_response({404, "model_not_found", "[model] there is no such model", "model"}));
    e->respond(json_response({{"id", name}, {"object", "model"}, {"created", 0}, {"owned_by", "danqing"}}));
  });
}

}  // namespace danqing::server
