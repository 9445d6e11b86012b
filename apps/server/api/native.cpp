// /v1/jobs, /v1/images, /v1/enhance.
#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "base/try.h"
#include "base/units.h"
#include "server/api/app.h"
#include "server/api/job_request.h"

namespace danqing::server {
namespace {

std::optional<int> number_of(const std::string& text) {
  int v = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (ec != std::errc() || end != text.data() + text.size() || v < 0) return {};
  return v;
}

Api<Page> page_of(const Request& r) {
  Page p;
  if (const auto it = r.query.find("limit"); it != r.query.end()) {
    const auto n = number_of(it->second);
    if (!n || *n < 1 || *n > 200) return ApiError{422, "invalid_value", "[request] limit expected 1 to 200", "limit"};
    p.limit = *n;
  }
  if (const auto it = r.query.find("cursor"); it != r.query.end()) {
    int64_t v = 0;
    const auto [end, ec] = std::from_chars(it->second.data(), it->second.data() + it->second.size(), v);
    if (ec != std::errc() || end != it->second.data() + it->second.size() || v < 1)
      return ApiError{422, "invalid_value", "[request] cursor expected what next_cursor gave", "cursor"};
    p.before = v;
  }
  return p;
}

const ApiError kNoJob{404, "not_found", "[jobs] there is no such job"};
const ApiError kNoPicture{404, "not_found", "[jobs] there is no such picture"};

/// The job of the address, if the caller may see it; answers otherwise.
std::optional<JobView> job_of(App& app, const ExchangePtr& e) {
  const std::string& id = e->request.params["id"];
  std::optional<JobView> view;
  if (is_job_id(id)) view = app.jobs->view(id);
  if (view && !app.jobs->may_see(e->request.caller, view->record)) view.reset();
  if (!view) e->respond(error_response(kNoJob));
  return view;
}

void create(App& app, const ExchangePtr& e) {
  auto fields = Fields::parse(e->request);
  if (!fields) return e->respond(error_response(fields.error()));
  auto spec = native_spec(*fields);
  if (!spec) return e->respond(error_response(spec.error()));
  auto record = admit(app, e->request, std::move(*spec));
  if (!record) return e->respond(error_response(record.error()));
  auto submitted = app.jobs->submit(std::move(*record), [&](const LivePtr& j) { app.enhancer->prepare(j); });
  if (!submitted) return e->respond(error_response(submitted.error()));
  const auto view = app.jobs->view(submitted->record.id);
  Json j = job_json(app, view ? *view : JobView{submitted->record, {}, {}, 0});
  j["warnings"] = fields->unknown();
  Response r = json_response(j, submitted->existed ? 200 : 202);
  r.headers.emplace_back("Location", "/v1/jobs/" + submitted->record.id);
  e->respond(std::move(r));
}

void list(App& app, const ExchangePtr& e) {
  const Request& r = e->request;
  auto page = page_of(r);
  if (!page) return e->respond(error_response(page.error()));
  std::optional<Status> status;
  if (const auto it = r.query.find("status"); it != r.query.end()) {
    status = parse_status(it->second);
    if (!status)
      return e->respond(error_response(
          {422, "invalid_value", "[request] status expected queued, running, done, failed or cancelled", "status"}));
  }
  Json data = Json::array();
  int64_t last = 0;
  for (const JobRecord& record : app.store->list(r.caller, status, *page)) {
    const auto view = app.jobs->view(record.id);
    if (view) data.push_back(job_json(app, *view));
    last = record.seq;
  }
  const bool more = data.size() == static_cast<size_t>(page->limit);
  e->respond(
      json_response({{"object", "list"}, {"data", data}, {"next_cursor", more ? Json(std::to_string(last)) : Json()}}));
}

void remove(App& app, const ExchangePtr& e) {
  const auto view = job_of(app, e);
  if (!view) return;
  app.jobs->cancel(view->record.id);
  const auto after = app.jobs->view(view->record.id);
  if (after && after->record.status != Status::cancelled)
    return e->respond(error_response(
        {409, "job_ended", fmt::format("[jobs] the job is {} and cannot be cancelled", name(after->record.status))}));
  e->respond(json_response(job_json(app, after ? *after : *view)));
}

void events(App& app, const ExchangePtr& e) {
  const auto view = job_of(app, e);
  if (!view) return;
  const std::string id = view->record.id;
  e->begin_stream(200, "text/event-stream", {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}});
  const auto end = [&app, e, id](const std::string& type) {
    const auto now = app.jobs->view(id);
    e->write(sse(type, now ? job_json(app, *now) : Json{{"id", id}}), false);
    e->finish();
  };
  auto token = std::make_shared<std::atomic<int>>(0);
  *token = app.jobs->subscribe(id, true, [&app, e, end](const Event& event) {
    if (event.final) return app.pool->post([end, type = event.type] { end(type); });
    if (event.type == "preview") {
      const auto bytes = encode_image(*event.preview, ImageFormat::webp, {}, {75});
      if (!bytes) return;
      Json data = event.data;
      data["width"] = event.preview->width;
      data["height"] = event.preview->height;
      data["b64_json"] = base64(*bytes);
      data["format"] = "webp";
      return e->write(sse("preview", data), true);
    }
    e->write(sse(event.type, event.data), event.type == "step");
  });
  if (*token == 0) return end(std::string(name(app.jobs->view(id).value_or(*view).record.status)));
  app.keep_alive(e);
  e->on_closed([&app, id, token] { app.pool->post([&app, id, token] { app.jobs->unsubscribe(id, *token, true); }); });
}

void picture(App& app, const ExchangePtr& e) {
  const Request& r = e->request;
  const std::string id = r.params.at("id"), file = r.params.at("file");
  const size_t dot = file.find('.');
  const auto n = number_of(file.substr(0, dot));
  const std::string extension = dot == std::string::npos ? "" : file.substr(dot + 1);
  if (!is_job_id(id) || !n) return e->respond(error_response(kNoPicture));
  if (!good_signature(app, r, id, *n)) {
    const auto caller = app.keys.caller(r);
    if (!caller)
      return e->respond(error_response({401, "invalid_api_key", "[keys] expected an API key or a signed address"}));
    const auto record = app.jobs->view(id);
    if (!record || !app.jobs->may_see(*caller, record->record)) return e->respond(error_response(kNoPicture));
  }
  const Headers cache{{"Cache-Control", "private, max-age=86400, immutable"}};
  if (extension == "thumb") {
    const auto bytes = app.store->read_thumbnail(id, *n);
    if (!bytes) return e->respond(error_response(kNoPicture));
    return e->respond({200, "image/webp", *bytes, cache});
  }
  const auto format = image_format_of("x." + extension);
  if (!format) return e->respond(error_response(kNoPicture));
  const auto bytes = picture_as(app, id, *n, *format, {});
  if (!bytes) return e->respond(error_response(kNoPicture));
  Response answer{200, std::string(mime_type(*format)), *bytes, cache};
  if (r.query.count("download"))
    answer.headers.emplace_back("Content-Disposition",
                                fmt::format("attachment; filename=\"{}-{}.{}\"", id, *n, extension));
  e->respond(std::move(answer));
}

void remove_picture(App& app, const ExchangePtr& e) {
  const auto view = job_of(app, e);
  if (!view) return;
  const std::string file = e->request.params["file"];
  const auto n = number_of(file.substr(0, file.find('.')));
  if (!n || !app.store->remove_picture(view->record.id, *n)) return e->respond(error_response(kNoPicture));
  e->respond({204, "", "", {}});
}

void gallery(App& app, const ExchangePtr& e) {
  auto page = page_of(e->request);
  if (!page) return e->respond(error_response(page.error()));
  Json data = Json::array();
  int64_t last = 0;
  for (const Picture& p : app.store->gallery(e->request.caller, *page)) {
    data.push_back(picture_json(app, p));
    last = p.id;
  }
  const bool more = data.size() == static_cast<size_t>(page->limit);
  e->respond(
      json_response({{"object", "list"}, {"data", data}, {"next_cursor", more ? Json(std::to_string(last)) : Json()}}));
}

/// Everything that is queued or running, for the page's queue view.
void active(App& app, const ExchangePtr& e) {
  Json data = Json::array();
  for (const JobView& v : app.jobs->active(e->request.caller)) data.push_back(job_json(app, v));
  e->respond(json_response({{"object", "list"}, {"data", data}, {"waiting", app.jobs->queued()}}));
}

/// The settings inside a picture that the client sends.
void read_settings(App&, const ExchangePtr& e) {
  const auto metadata = read_image_metadata(e->request.body);
  if (!metadata) return e->respond(error_response({422, "not_a_picture", metadata.error().message}));
  Json j = Json::object();
  for (const auto& [key, value] : *metadata) j[key] = value;
  if (const auto it = metadata->find("danqing"); it != metadata->end())
    if (auto settings = parse_json(it->second, "picture")) j["danqing"] = *settings;
  e->respond(json_response({{"metadata", j}}));
}

void enhance(App& app, const ExchangePtr& e) {
  auto fields = Fields::parse(e->request);
  if (!fields) return e->respond(error_response(fields.error()));
  Fields& f = *fields;
  const std::string prompt = f.text("prompt").value_or("");
  if (!f.any("prompt")) f.wrong("prompt", "text");
  const bool stream = f.boolean("stream").value_or(false);
  const auto use = f.choice("use", {"model", "external"});
  EnhanceOptions o;
  read_enhance_options(f, o);
  const std::string asked = f.text("model").value_or("");
  if (auto size = f.text("size"); size && *size != "auto") {
    if (auto s = parse_size(*size))
      std::tie(o.width, o.height) = *s;
    else
      f.wrong("size", "auto or WIDTHxHEIGHT");
  }
  if (f.error()) return e->respond(error_response(*f.error()));
  if (prompt.size() > static_cast<size_t>(app.config.max_prompt_bytes) || prompt.find('\0') != std::string::npos)
    return e->respond(error_response(
        {413, "prompt_too_long", fmt::format("[limits] expected text of at most {} bytes", app.config.max_prompt_bytes),
         "prompt"}));
  o.max_new_tokens = std::min(o.max_new_tokens, app.config.enhancer_tokens);
  const std::string model = app.models->resolve(asked);
  if (model.empty())
    return e->respond(error_response(
        {404, "model_not_found", fmt::format("[model] there is no model '{}'", one_line(asked, 60)), "model"}));
  const auto answer = [e, stream](const std::string& text, const Json& more) {
    Json j{{"object", "enhanced_prompt"}, {"text", text}};
    j.update(more);
    if (!stream) return e->respond(json_response(j));
    e->write(sse("done", j), false);
    e->finish();
  };
  const auto failed = [e, stream](const Error& error) {
    if (!stream) return e->respond(error_response(to_api(error)));
    e->write(sse("failed", {{"error", {{"message", error.message}}}}), false);
    e->finish();
  };
  const bool external = use ? *use == "external" : app.enhancer->external();
  if (external && !app.enhancer->external())
    return e->respond(error_response(
        {422, "no_external_enhancer", "[enhance] this server has no external enhancer (--enhancer-url)", "use"}));
  const auto open_stream = [&] {
    if (stream) e->begin_stream(200, "text/event-stream", {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}});
  };
  if (external) {
    open_stream();
    const auto text = app.enhancer->ask(prompt, o);
    return text ? answer(*text, {{"enhancer", "external"}}) : failed(text.error());
  }
  if (!app.models->find(model)->info().has_prompt_enhancer)
    return e->respond(error_response({422, "no_enhancer", "[enhance] this model has no prompt enhancer", "model"}));
  auto job = app.jobs->submit_task(e->request.caller, e->request.trace_id,
                                   [&app, e, prompt, o, model, stream, answer, failed](LiveJob& live) {
                                     GenerateRequest only;
                                     only.prompts = {prompt};
                                     only.enhancer = EnhancerMode::on;
                                     auto engine = app.models->use(model, only);
                                     Result<EnhanceResult> result = fail(ErrorCode::failed, "[enhance] stopped");
                                     if (!engine) {
                                       result = engine.error();
                                     } else {
                                       RunControl control;
                                       control.cancelled = [&] { return live.out || e->closed() || app.stopping; };
                                       control.on_progress = [&](const ProgressEvent& p) {
                                         if (stream && !p.text.empty())
                                           e->write(sse("text", {{"text", p.text}}), false);
                                       };
                                       result = (*engine)->enhance(prompt, o, control);
                                     }
                                     if (result)
                                       answer(result->text, {{"enhancer", "model"},
                                                             {"prompt_tokens", result->prompt_tokens},
                                                             {"new_tokens", result->new_tokens},
                                                             {"reached_limit", result->reached_limit}});
                                     else
                                       failed(result.error());
                                     live.out = true;
                                   });
  if (!job) return e->respond(error_response(job.error()));
  open_stream();
}

}  // namespace

void add_native(App& app) {
  const auto route = [&](const char* method, const char* pattern, void (*f)(App&, const ExchangePtr&),
                         Access access = Access::key) {
    app.router.add({method, pattern, access, [&app, f](const ExchangePtr& e) { f(app, e); }, false});
  };
  route("POST", "/v1/jobs", create);
  route("GET", "/v1/jobs", list);
  route("GET", "/v1/jobs/{id}", [](App& a, const ExchangePtr& e) {
    if (const auto view = job_of(a, e)) e->respond(json_response(job_json(a, *view)));
  });
  route("DELETE", "/v1/jobs/{id}", remove);
  route("GET", "/v1/jobs/{id}/events", events);
  route("GET", "/v1/jobs/{id}/images/{file}", picture, Access::all);
  route("DELETE", "/v1/jobs/{id}/images/{file}", remove_picture);
  route("GET", "/v1/queue", active);
  route("GET", "/v1/images", gallery);
  route("POST", "/v1/images/settings", read_settings);
  route("POST", "/v1/enhance", enhance);
}

}  // namespace danqing::server
