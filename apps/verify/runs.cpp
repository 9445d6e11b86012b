// Whole calls of the pipeline: noise, schedule, every step, the decoded picture.
#include "base/file.h"
#include "base/try.h"
#include "verify/stages.h"

namespace danqing::app::verify {
namespace {

namespace fs = std::filesystem;
using SharedEngine = Lazy<std::unique_ptr<Engine>>;

/// What the golden's JSON says about the call. `why_not` is set when this build cannot repeat it.
struct Call {
  GenerateRequest request;
  std::string why_not;
};

Result<std::vector<std::string>> texts(const Json& json, const char* member, const std::string& where) {
  std::vector<std::string> out;
  const auto it = json.find(member);
  if (it == json.end() || it->is_null()) return out;
  if (it->is_string()) return std::vector<std::string>{it->get<std::string>()};
  if (it->is_array())
    for (const Json& t : *it) {
      if (!t.is_string()) return bad_input("[verify] {}: '{}' expected texts, got {}", where, member, t.type_name());
      out.push_back(t.get<std::string>());
    }
  return out;
}

/// The texts of a call that names its prompts as tokens.json does.
Result<std::vector<std::string>> named_prompts(const Model& m, const Json& names, const std::string& where) {
  DQ_TRY(const Json tokens, read_json(m.stem("tokens.json")));
  std::vector<std::string> out;
  for (const Json& n : names) {
    if (!n.is_string() || !tokens.contains("prompts") || !tokens["prompts"].contains(n.get<std::string>()))
      return bad_input("[verify] {}: 'call.prompt' expected names of tokens.json's prompts", where);
    out.push_back(tokens["prompts"][n.get<std::string>()].get<std::string>());
  }
  return out;
}

/// "image_in_u8" [H, W, 3] as a picture.
Result<Image> given_picture(Golden& g) {
  DQ_TRY(const Tensor t, g.tensor("image_in_u8", 3));
  if (t.size(2) != 3) return bad_input("[verify] {}: 'image_in_u8' expected 3 channels, got {}", g.label(), t.size(2));
  Image image{static_cast<int>(t.size(1)), static_cast<int>(t.size(0)), {}};
  for (const float v : t.data) image.pixels.push_back(static_cast<uint8_t>(v));
  return image;
}

Result<Call> read_call(const Model& m, Golden& g) {
  const std::string where = g.label() + ".json";
  DQ_TRY(const JsonObject top, JsonObject::of(g.json(), where));
  DQ_TRY(const JsonObject call, top.object("call"));
  Call out;
  GenerateRequest& r = out.request;
  DQ_TRY(r.prompts, texts(g.json(), "prompt_text", where));
  if (const Json* names = call.get("prompt"); r.prompts.empty() && names && names->is_array()) {
    DQ_TRY(r.prompts, named_prompts(m, *names, where));
  }
  if (call.has("strength")) {
    DQ_TRY(r.strength, call.number("strength"));
    DQ_TRY(r.init_image, given_picture(g));
  }
  DQ_TRY(r.negative_prompts, texts(g.json(), "negative_text", where));
  DQ_TRY(const int64_t width, call.integer_in("width", 1, 1 << 16));
  DQ_TRY(const int64_t height, call.integer_in("height", 1, 1 << 16));
  DQ_TRY(const int64_t steps, call.integer_in("steps", 0, 1000));
  DQ_TRY(const double guidance, call.number("guidance"));
  DQ_TRY(const int64_t per_prompt, call.integer_in("per_prompt", 1, 256, 1));
  DQ_TRY(const bool use_pe, call.boolean("use_pe", false));
  if (call.has("cfg_normalization")) {
    const Json& n = *call.get("cfg_normalization");
    r.cfg_normalization = n.is_boolean() ? (n.get<bool>() ? 1.0f : 0.0f) : n.is_number() ? n.get<float>() : -1.0f;
  }
  if (call.has("cfg_truncation")) {
    DQ_TRY(const double truncation, call.number("cfg_truncation"));
    r.cfg_truncation = static_cast<float>(truncation);
  }
  const Json* seed = call.get("seed");
  if (!seed || !seed->is_number_integer()) return bad_input("[verify] {}: 'call.seed' expected a whole number", where);
  r.seeds = {seed->is_number_unsigned() ? seed->get<uint64_t>() : static_cast<uint64_t>(seed->get<int64_t>())};
  r.width = static_cast<int>(width);
  r.height = static_cast<int>(height);
  r.num_inference_steps = static_cast<int>(steps);
  r.guidance_scale = static_cast<float>(guidance);
  r.images_per_prompt = static_cast<int>(per_prompt);
  r.batch_size = static_cast<int>(r.prompts.size()) * r.images_per_prompt;  // together, so that names carry no group
  r.one_stream = true;                                                      // the reference gives one generator
  r.enhancer = EnhancerMode::off;
  if (use_pe) out.why_not = "the reference's enhancer drew from a global random state that the file does not give";
  return out;
}

/// The intermediates that the golden has, by its names; those of single pictures joined along the first axis.
struct Results {
  std::map<std::string, Tensor> values;
  std::map<std::string, std::map<int, Tensor>> by_picture;
  std::vector<Image> images;

  Result<void> join() {
    for (auto& [name, parts] : by_picture) {
      std::vector<Tensor> list;
      for (auto& [index, t] : parts) list.push_back(std::move(t));
      DQ_TRY(values[name], concat(list));
    }
    return {};
  }
};

constexpr const char *kSeen = "init_latents_as_seen_by_transformer", *kTimes = "model_t";

/// What Z-Image's goldens keep in another form: the noise as the network gets it, and the times of all steps in a row.
void add_other_forms(const Golden& g, Results& r) {
  if (g.has(kSeen) && r.values.contains("init_latents")) r.values[kSeen] = r.values["init_latents"];
  if (!g.has(kTimes)) return;
  Tensor times(Shape{0});
  for (int i = 0; r.values.contains(fmt::format("step.{}.{}", i, kTimes)); ++i) {
    times.data.push_back(r.values[fmt::format("step.{}.{}", i, kTimes)].data[0]);
    ++times.shape[0];
  }
  r.values[kTimes] = std::move(times);
}

Result<Results> run(Engine& engine, const GenerateRequest& request,
                    const std::function<bool(const std::string&)>& wanted) {
  Results r;
  RunControl control;
  control.dump = [&](const std::string& name, const std::vector<int64_t>& shape, const std::vector<float>& data) {
    std::string plain = name;
    int picture = -1;
    if (name.starts_with("image.")) {
      const size_t dot = name.find('.', 6);
      if (dot == std::string::npos) return;
      picture = std::atoi(name.c_str() + 6);
      plain = name.substr(dot + 1);
    }
    if (!wanted(plain)) return;
    (picture < 0 ? r.values[plain] : r.by_picture[plain][picture]) = Tensor(shape, data);
  };
  DQ_TRY(GenerateResult result, engine.generate(request, control));
  for (GeneratedImage& i : result.images) r.images.push_back(std::move(i.image));
  DQ_CHECK(r.join());
  return r;
}

/// golden/png/NAME_0_f32.png ...: the pictures of a run as files.
std::vector<fs::path> picture_files(const Model& m, const std::string& name) {
  std::vector<fs::path> out;
  std::error_code ec;
  const fs::path only = m.golden_directory() / "png" / (name + "_out.png");
  if (fs::exists(only, ec)) out.push_back(only);
  for (int i = 0;; ++i) {
    const fs::path file = m.golden_directory() / "png" / fmt::format("{}_{}_f32.png", name, i);
    if (!fs::exists(file, ec)) return out;
    out.push_back(file);
  }
}

Result<Tensor> read_picture(const fs::path& file) {
  DQ_TRY(const std::string bytes, read_text(file));
  DQ_TRY(const Image image, decode_image(bytes));
  return pixels({image});
}

/// The files hold what the run's image_u8 holds.
void add_picture_files(const Model& m, const std::string& name, const std::shared_ptr<Golden>& g) {
  const std::vector<fs::path> files = picture_files(m, name);
  for (size_t i = 0; i < files.size(); ++i) {
    const auto entry = m.suite.entries(files[i], {"picture"});
    m.suite.add(m.stage("png"), files[i].stem().string(), entry, {"picture"},
                [g, entry, file = files[i], i](Checker& c) -> Result<void> {
                  DQ_TRY(const Tensor got, read_picture(file));
                  DQ_TRY(const Tensor expected, g->tensor("image_u8", 4));
                  if (static_cast<int64_t>(i) >= expected.size(0))
                    return bad_input("[verify] {}: image_u8 has {} pictures", g->label(), expected.size(0));
                  c.compare(file.stem().string(), slice(expected, static_cast<int64_t>(i), 1), got, Tolerance::exact());
                  entry->mark("picture", Mark::compared);
                  return {};
                });
  }
}

std::function<bool(const std::string&)> wanted_by(const Golden& g) {
  return [&g](const std::string& key) {
    return g.has(key) || (key == "init_latents" && g.has(kSeen)) || (key.ends_with(kTimes) && g.has(kTimes));
  };
}

Tolerance value_tolerance(Golden& g, const std::string& key, double factor) {
  const double spread = f32_spread(g.json(), "final_latents");
  if (key == kTimes) return model_time_tolerance();
  // From a picture the start has come through the VAE's encoder, as the latents later come through the denoiser.
  const bool from_picture = g.has("image_in_u8");
  if ((key == "init_latents" || key == kSeen) && !from_picture) {
    const auto golden = g.tensor(key);
    return noise_tolerance(false, golden ? *golden : Tensor());
  }
  if (key == "sigmas" || key == "timesteps") return {Measure::max_relative, page::kScheduler, 1, "page 1e-07 relative"};
  return f32_tolerance(key == "decoded" ? page::kDecoded : page::kLatents, spread, factor);
}

Result<void> check_f32(const Model& m, const std::string& name, Golden& g, SharedEngine& engine, Checker& c) {
  DQ_TRY(const Call call, read_call(m, g));
  DQ_TRY(auto* e, engine.get());
  DQ_TRY(Results r, run(**e, call.request, wanted_by(g)));
  add_other_forms(g, r);
  const Json measured =
      g.json().contains("measured") && g.json()["measured"].is_object() ? g.json()["measured"] : Json::object();
  const Tolerance picture = picture_tolerance(m.suite.factors, measured.value("image_u8", Json()));
  for (const std::string& key : g.keys()) {
    if (key == "image_u8")
      c.compare(key, g, key, pixels(r.images), picture);
    else if (const auto it = r.values.find(key); it != r.values.end())
      c.compare(key, g, key, it->second, value_tolerance(g, key, m.suite.factors.matmul));
  }
  const std::vector<fs::path> files = picture_files(m, name);
  for (size_t i = 0; i < files.size() && i < r.images.size(); ++i) {
    DQ_TRY(const Tensor expected, read_picture(files[i]));
    c.compare("png " + files[i].stem().string(), expected, pixels({r.images[i]}), picture);
  }
  return {};
}

/// Rows of one bf16 picture: relative L2 by the bf16 rule, and the largest difference in levels by the same factors.
void check_bf16_picture(Golden& g, const std::string& key, Golden& f32, const std::vector<Image>& images, Checker& c) {
  const Tensor got = pixels(images);
  c.bf16(key, g, key, f32, "image_u8", got, {}, 0);
  auto levels = number_at(g.json(), {"measured", "image", "max_levels"});
  if (!levels) levels = number_at(g.json(), {"measured", "image_u8", "max_levels"});
  if (!levels) return;
  const auto bound = [&](double times) {
    return Tolerance{Measure::levels, times * *levels, 1,
                     fmt::format("{:g} x torch's bf16 error of {:g} levels", times, *levels)};
  };
  if (f32.has("image_u8")) c.compare(key + " levels vs f32", f32, "image_u8", got, bound(1.5));
  c.compare(key + " levels", g, key, got, bound(2));
}

Result<void> check_bf16(const Model& m, Golden& g, Golden& f32, SharedEngine& engine, Checker& c) {
  DQ_TRY(const Call call, read_call(m, g));
  DQ_TRY(auto* e, engine.get());
  DQ_TRY(Results r, run(**e, call.request, wanted_by(g)));
  add_other_forms(g, r);
  if (const auto seen = r.values.find(kSeen); seen != r.values.end())  // the noise is f32, the network takes bf16
    for (float& v : seen->second.data) v = round_bf16(v);
  auto measured = number_at(g.json(), {"measured", "vs_f32_same_noise", "rel_l2"});
  if (!measured) measured = number_at(g.json(), {"measured", "final_latents", "rel_l2"});
  const double floor = page::kLatents;
  for (const std::string& key : g.keys()) {
    const auto it = r.values.find(key);
    if (key == "image_u8")
      check_bf16_picture(g, key, f32, r.images, c);
    else if (it == r.values.end())
      continue;
    else if (key == "init_latents" || key == kSeen)
      c.compare(key, g, key, it->second, noise_tolerance(true, {}));
    else if (key == "sigmas" || key == "timesteps" || key == kTimes)
      c.compare(key, g, key, it->second, value_tolerance(g, key, 1));
    else  // measured for the end of the run; the error on the way there is read off the two goldens
      c.bf16(key, g, key, f32, key, it->second, key == "final_latents" ? measured : std::nullopt, floor);
  }
  if (!g.has("final_latents_from_f32_noise") && !g.has("image_u8_from_f32_noise")) return {};
  GenerateRequest again = call.request;
  DQ_TRY(const Tensor noise, f32.tensor("init_latents"));
  for (const float v : noise.data) again.latents.push_back(round_bf16(v));
  DQ_TRY(r, run(**e, again, [](const std::string& key) { return key == "final_latents"; }));
  if (const auto it = r.values.find("final_latents"); it != r.values.end() && g.has("final_latents_from_f32_noise"))
    c.bf16("final_latents_from_f32_noise", g, "final_latents_from_f32_noise", f32, "final_latents", it->second,
           measured, floor);
  if (g.has("image_u8_from_f32_noise")) check_bf16_picture(g, "image_u8_from_f32_noise", f32, r.images, c);
  return {};
}

}  // namespace

void add_runs(const Model& m, const std::vector<std::string>& files) {
  const auto f32_engine = std::make_shared<SharedEngine>([m] { return m.open_engine(false); });
  const auto bf16_engine = std::make_shared<SharedEngine>([m] { return m.open_engine(true); });
  for (const std::string& file : files) {
    const bool bf16 = file.ends_with("_bf16");
    const std::string name = file.starts_with("run_") ? file.substr(4, file.rfind('_') - 4) : file;
    const auto g = m.golden(file);
    if (g->error()) continue;  // has its row
    const auto call = read_call(m, *g);
    if (!call)
      m.suite.fail(m.stage(file), "call", call.error().message);
    else if (!call->why_not.empty())
      m.suite.skip(m.stage(file), name, g, g->keys(), call->why_not);
    else if (bf16)
      m.suite.add(m.stage(file), name, g, g->keys(),
                  [m, g, f32 = m.golden("run_" + name + "_f32"), bf16_engine](Checker& c) {
                    return check_bf16(m, *g, *f32, *bf16_engine, c);
                  });
    else
      m.suite.add(m.stage(file), name, g, g->keys(),
                  [m, name, g, f32_engine](Checker& c) { return check_f32(m, name, *g, *f32_engine, c); });
    if (!bf16) add_picture_files(m, name, g);
  }
}

}  // namespace danqing::app::verify
