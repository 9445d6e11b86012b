#include "server/queue/ticket.h"

#include "base/try.h"

namespace danqing::server {
namespace {

constexpr const char* kKinds[] = {"running", "progress", "preview", "picture", "given_back", "ended"};

Json picture_to_json(const Picture& p) {
  return {{"job", p.job},         {"n", p.n},           {"seed", p.seed},
          {"width", p.width},     {"height", p.height}, {"bytes", p.bytes},
          {"created", p.created}, {"model", p.model},   {"settings", p.settings}};
}

Picture picture_of(const Json& j) {
  Picture p;
  p.job = j.at("job").get<std::string>();
  p.n = j.at("n").get<int>();
  p.seed = j.at("seed").get<uint64_t>();
  p.width = j.at("width").get<int>(), p.height = j.at("height").get<int>();
  p.bytes = j.at("bytes").get<uint64_t>();
  p.created = j.at("created").get<double>();
  p.model = j.at("model").get<std::string>();
  p.settings = j.at("settings");
  return p;
}

/// Our own JSON, but from another machine: nothing of it may throw past here.
template <class T, class F>
Result<T> reading(const char* what, F&& f) {
  try {
    return f();
  } catch (const std::exception& e) {
    return bad_input("[queue] {} cannot be read: {}", what, e.what());
  }
}

}  // namespace

Json to_json(const Ticket& t) {
  return {{"id", t.id},           {"key", t.key},           {"trace_id", t.trace_id},
          {"origin", t.origin},   {"class", t.size_class},  {"seq", t.seq},
          {"created", t.created}, {"deadline", t.deadline}, {"spec", to_json(t.spec)},
          {"revised", t.revised}};
}

Result<Ticket> ticket_from_json(const Json& j) {
  return reading<Ticket>("a job", [&]() -> Result<Ticket> {
    Ticket t;
    t.id = j.at("id").get<std::string>();
    if (!is_job_id(t.id)) return bad_input("[queue] a job cannot be read: wrong id");
    t.key = j.at("key").get<std::string>();
    t.trace_id = j.at("trace_id").get<std::string>();
    t.origin = j.at("origin").get<std::string>();
    t.size_class = j.at("class").get<std::string>();
    t.seq = j.at("seq").get<int64_t>();
    t.created = j.at("created").get<double>(), t.deadline = j.at("deadline").get<double>();
    t.revised = j.at("revised").get<std::vector<std::string>>();
    DQ_TRY(t.spec, spec_from_json(j.at("spec")));
    return t;
  });
}

const std::vector<SizeClass>& size_classes() {
  static const std::vector<SizeClass> list{{"s", 512}, {"m", 1024}, {"l", 2048}, {"xl", 4096}};
  return list;
}

std::string size_class_of(int width, int height) {
  const auto pixels = static_cast<int64_t>(width) * height;
  for (const SizeClass& c : size_classes())
    if (pixels <= int64_t{c.side} * c.side) return c.name;
  return size_classes().back().name;
}

Json to_json(const Outcome& o) {
  Json pictures = Json::array();
  for (const Picture& p : o.pictures) pictures.push_back(picture_to_json(p));
  return {{"status", std::string(name(o.status))},
          {"code", o.code},
          {"message", o.message},
          {"notes", o.notes},
          {"timing", o.timing},
          {"pictures", pictures},
          {"worker", o.worker}};
}

Result<Outcome> outcome_from_json(const Json& j) {
  return reading<Outcome>("a result", [&]() -> Result<Outcome> {
    Outcome o;
    const auto status = parse_status(j.at("status").get<std::string>());
    if (!status || !is_final(*status)) return bad_input("[queue] a result cannot be read: wrong status");
    o.status = *status;
    o.code = j.at("code").get<std::string>(), o.message = j.at("message").get<std::string>();
    o.notes = j.at("notes").get<std::vector<std::string>>();
    o.timing = j.at("timing");
    for (const Json& p : j.at("pictures")) o.pictures.push_back(picture_of(p));
    o.worker = j.at("worker").get<std::string>();
    return o;
  });
}

Json to_json(const Update& u) {
  Json j{{"kind", kKinds[static_cast<int>(u.kind)]}, {"id", u.id}, {"worker", u.worker}};
  switch (u.kind) {
    case Update::Kind::running: j["together"] = u.together; break;
    case Update::Kind::progress:
      j.update({{"stage", u.stage},
                {"step", u.step},
                {"steps", u.steps},
                {"image", u.image},
                {"images", u.images},
                {"seconds_per_step", u.seconds_per_step},
                {"alone", u.alone}});
      break;
    case Update::Kind::preview: j.update({{"n", u.n}, {"step", u.step}}); break;
    case Update::Kind::picture: j["picture"] = picture_to_json(u.picture); break;
    case Update::Kind::given_back: break;
    case Update::Kind::ended: j["outcome"] = to_json(u.outcome); break;
  }
  return j;
}

Result<Update> update_from_json(const Json& j) {
  return reading<Update>("a worker's message", [&]() -> Result<Update> {
    Update u;
    const auto kind = j.at("kind").get<std::string>();
    int i = 0;
    while (i < 6 && kind != kKinds[i]) ++i;
    if (i == 6) return bad_input("[queue] a worker's message cannot be read: unknown kind");
    u.kind = static_cast<Update::Kind>(i);
    u.id = j.at("id").get<std::string>();
    u.worker = j.at("worker").get<std::string>();
    u.together = j.value("together", 0);
    u.stage = j.value("stage", "");
    u.step = j.value("step", 0), u.steps = j.value("steps", 0);
    u.image = j.value("image", 0), u.images = j.value("images", 0);
    u.seconds_per_step = j.value("seconds_per_step", 0.0);
    u.alone = j.value("alone", true);
    u.n = j.value("n", 0);
    if (u.kind == Update::Kind::picture) u.picture = picture_of(j.at("picture"));
    if (u.kind == Update::Kind::ended) {
      DQ_TRY(u.outcome, outcome_from_json(j.at("outcome")));
    }
    return u;
  });
}

}  // namespace danqing::server
