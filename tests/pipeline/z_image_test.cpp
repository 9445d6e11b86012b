// Z-Image through the public API: whole pictures, its guidance, prompts, defaults, and the packagings that people have.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "base/text.h"
#include "checkpoint/safetensors_writer.h"
#include "danqing/engine.h"
#include "models/vae/vae.h"
#include "pipeline/z_image_family.h"
#include "testing/testing.h"

namespace danqing {
namespace {

namespace fs = std::filesystem;
using testing::close;
using testing::data;
using testing::Golden;
using testing::golden;
using ::testing::HasSubstr;

fs::path tiny() { return data("fixtures/zimage-tiny"); }

std::unique_ptr<Engine> open(ModelPaths paths, ComputeType type = ComputeType::f32) {
  EngineOptions options;
  options.paths = std::move(paths);
  options.device = "cpu";
  options.compute_type = type;
  auto engine = Engine::open(options);
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().message);
  return engine.ok() ? std::move(*engine) : nullptr;
}

/// The call of a golden run.
GenerateRequest request_of(const Golden& g) {
  const Json& call = g.json["call"];
  GenerateRequest r;
  for (const Json& p : g.json["prompt_text"]) r.prompts.push_back(p.get<std::string>());
  r.width = call["width"].get<int>();
  r.height = call["height"].get<int>();
  r.num_inference_steps = call["steps"].get<int>();
  r.guidance_scale = call["guidance"].get<float>();
  r.seeds = {call["seed"].get<uint64_t>()};
  if (call.contains("cfg_normalization")) r.cfg_normalization = 1.0f;
  if (call.contains("cfg_truncation")) r.cfg_truncation = call["cfg_truncation"].get<float>();
  return r;
}

struct Drawn {
  std::map<std::string, Tensor> values;
  GenerateResult result;
};
Drawn draw(Engine& engine, const GenerateRequest& request) {
  Drawn out;
  RunControl control;
  control.dump = [&](const std::string& name, const Shape& shape, const std::vector<float>& values) {
    out.values[name] = Tensor(shape, values);
  };
  auto r = engine.generate(request, control);
  EXPECT_TRUE(r.ok()) << (r.ok() ? "" : r.error().message);
  if (r.ok()) out.result = std::move(*r);
  return out;
}

/// The picture that an image-to-image golden starts from.
Image given(const Golden& g) {
  const Tensor t = g.f32("image_in_u8");
  Image image{static_cast<int>(t.size(1)), static_cast<int>(t.size(0)), {}};
  for (const float v : t.data) image.pixels.push_back(static_cast<uint8_t>(v));
  return image;
}

TEST(ZImage, ImageToImageIsDiffusers) {
  const auto engine = open({.model = tiny()});
  ASSERT_TRUE(engine);
  const Golden g = golden("zimage-tiny/golden/img2img");
  GenerateRequest request;
  request.prompts = {golden("zimage-tiny/golden/tokens").json["prompts"]["en"].get<std::string>()};
  request.num_inference_steps = 5;
  request.guidance_scale = 0.0f;
  request.seeds = {11};
  request.strength = 0.6;
  request.init_image = given(g);
  const Drawn r = draw(*engine, request);
  EXPECT_TRUE(close(r.values.at("init_latents"), g.f32("init_latents_as_seen_by_transformer"), 2e-5));
  for (int i = 0; i < 3; ++i) {
    const std::string step = fmt::format("step.{}.", i);
    EXPECT_TRUE(close(r.values.at(step + "latents"), g.f32(step + "latents"), 2e-5)) << step;
    EXPECT_TRUE(close(r.values.at(step + "model_out"), g.f32(step + "model_out"), 2e-5)) << step;
  }
  EXPECT_FALSE(r.values.contains("step.3.latents"));
  EXPECT_TRUE(close(r.values.at("sigmas"), g.f32("sigmas"), 1e-6));
  EXPECT_TRUE(close(r.values.at("decoded"), g.f32("decoded"), 2e-5));
}

TEST(ZImage, WholePicturesAreDiffusers) {
  const auto engine = open({.model = tiny()});
  ASSERT_TRUE(engine);
  for (const char* name : {"run_g0_f32", "run_g5_norm_f32", "run_g5_trunc_f32"}) {
    const Golden g = golden(std::string("zimage-tiny/golden/") + name);
    const Drawn r = draw(*engine, request_of(g));
    // The page's tolerance for an independent f32 implementation.
    EXPECT_TRUE(close(r.values.at("final_latents"), g.f32("final_latents"), 2e-5)) << name;
    for (int i = 0; g.has(fmt::format("step.{}.latents", i)); ++i) {
      const std::string step = fmt::format("step.{}.", i);
      EXPECT_TRUE(close(r.values.at(step + "latents"), g.f32(step + "latents"), 2e-5)) << name << " " << step;
      EXPECT_TRUE(close(r.values.at(step + "model_out"), g.f32(step + "model_out"), 2e-5)) << name << " " << step;
    }
    EXPECT_TRUE(close(r.values.at("vae_input"), g.f32("vae_input"), 2e-5)) << name;
    const std::vector<int32_t> expected = g.ids("image_u8");
    const std::vector<uint8_t>& got = r.result.images.at(0).image.pixels;
    ASSERT_EQ(got.size(), expected.size()) << name;
    size_t different = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_LE(std::abs(got[i] - expected[i]), 1) << name;
      different += got[i] != expected[i];
    }
    EXPECT_LE(different, expected.size() / 200) << name;  // the page: 0.5 %
  }
}

TEST(ZImage, TruncatedStepsRunWithoutGuidance) {
  const auto engine = open({.model = tiny()});
  ASSERT_TRUE(engine);
  const Golden g = golden("zimage-tiny/golden/run_g5_trunc_f32");
  GenerateRequest request = request_of(g);
  const Drawn r = draw(*engine, request);
  std::vector<int64_t> halves;
  for (int i = 0; i < 4; ++i) halves.push_back(r.values.at(fmt::format("step.{}.model_out", i)).size(0));
  EXPECT_EQ(halves, (std::vector<int64_t>{2, 2, 2, 1}));
  request.cfg_truncation.reset();
  EXPECT_EQ(draw(*engine, request).values.at("step.3.model_out").size(0), 2);
}

TEST(ZImage, BatchesGiveEachPictureItsOwn) {
  const auto engine = open({.model = tiny()});
  ASSERT_TRUE(engine);
  GenerateRequest r;
  r.prompts = {"cat", "a red fox reading a golden book under the ancient bridge, watercolor, soft focus, and more"};
  r.negative_prompts = {"blurry"};
  r.width = r.height = 64;
  r.num_inference_steps = 2;
  r.guidance_scale = 3.0f;
  r.seeds = {7};
  r.batch_size = 1;
  const Drawn alone = draw(*engine, r);
  r.batch_size = 2;
  const Drawn together = draw(*engine, r);
  for (size_t i = 0; i < 2; ++i) {
    // A batch differs by the order of sums only (fixture: 5.6e-7 a pass): at most one level, here and there.
    const auto &a = alone.result.images.at(i).image.pixels, &b = together.result.images.at(i).image.pixels;
    ASSERT_EQ(a.size(), b.size());
    size_t different = 0;
    for (size_t k = 0; k < a.size(); ++k) {
      EXPECT_LE(std::abs(a[k] - b[k]), 1);
      different += a[k] != b[k];
    }
    EXPECT_LE(different, a.size() / 200);
  }
}

TEST(ZImage, DefaultsAreThoseOfTheKind) {
  const auto turbo = open({.model = tiny()});  // the scheduler's shift is the distilled model's
  ASSERT_TRUE(turbo);
  EXPECT_EQ(turbo->info().pipeline_class, "ZImagePipeline");
  EXPECT_EQ(turbo->info().defaults.num_inference_steps, 9);
  EXPECT_EQ(turbo->info().defaults.guidance_scale, 0.0f);
  EXPECT_EQ(turbo->info().defaults.shift, 3.0f);
  EXPECT_EQ(turbo->info().size_multiple, 16);
  EXPECT_EQ(turbo->info().max_side, 8192);  // axes_lens 512 of 16 pixels
  EXPECT_FALSE(turbo->info().has_prompt_enhancer);

  testing::TempDir dir;
  std::ofstream(dir / "scheduler_config.json")
      << R"({"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": 6.0})";
  const auto base = open({.model = tiny(), .scheduler = dir / "scheduler_config.json"});
  ASSERT_TRUE(base);
  EXPECT_EQ(base->info().defaults.num_inference_steps, 50);
  EXPECT_EQ(base->info().defaults.guidance_scale, 4.0f);
  EXPECT_EQ(base->info().defaults.shift, 6.0f);
}

TEST(ZImage, SettingsAreItsOwn) {
  const auto engine = open({.model = tiny()});
  ASSERT_TRUE(engine);
  GenerateRequest r;
  r.prompts = {"cat"};
  r.width = r.height = 64;
  struct Case {
    const char* says;
    std::function<void(GenerateRequest&)> change;
  };
  const Case cases[] = {
      {"[steps] expected 1", [](GenerateRequest& q) { q.num_inference_steps = 0; }},
      {"[size]", [](GenerateRequest& q) { q.width = 8208; }},
      {"[size]", [](GenerateRequest& q) { q.width = 72; }},
      {"[cfg_truncation]", [](GenerateRequest& q) { q.cfg_truncation = 1.5f; }},
      {"[cfg_truncation]", [](GenerateRequest& q) { q.cfg_truncation = NAN; }},
      {"[cfg_normalization]", [](GenerateRequest& q) { q.cfg_normalization = -1.0f; }},
      {"[enhance]", [](GenerateRequest& q) { q.enhancer = EnhancerMode::on; }},
      {"[latents] expected 1024", [](GenerateRequest& q) { q.latents = {1.0f}; }},
  };
  for (const Case& c : cases) {
    GenerateRequest q = r;
    c.change(q);
    const auto checked = engine->check(q);
    ASSERT_FALSE(checked.ok()) << c.says;
    EXPECT_EQ(checked.error().code, ErrorCode::usage);
    EXPECT_THAT(checked.error().message, HasSubstr(c.says));
  }
  // Any guidance above 0 is guidance; limits without it are said to have no effect.
  r.num_inference_steps = 1;
  r.guidance_scale = 0.5f;
  EXPECT_EQ(draw(*engine, r).values.at("step.0.model_out").size(0), 2);
  r.guidance_scale = 0.0f;
  r.cfg_normalization = 1.0f;
  const Drawn unguided = draw(*engine, r);
  EXPECT_EQ(unguided.values.at("step.0.model_out").size(0), 1);
  EXPECT_THAT(unguided.result.notes, ::testing::Contains(HasSubstr("no effect without guidance")));
}

TEST(ZImage, PromptsAreTemplatedAndCut) {
  DQ_ASSERT_OK(const auto tokenizer, Tokenizer::load(tiny() / "tokenizer"));
  DQ_ASSERT_OK(const ChatTemplate chat, z_image_template(tiny() / "tokenizer"));
  const Golden g = golden("zimage-tiny/golden/tokens");
  for (const auto& [name, prompt] : g.json["prompts"].items()) {
    DQ_ASSERT_OK(const ZImagePrompt p, z_image_prompt(*tokenizer, chat, prompt.get<std::string>()));
    EXPECT_EQ(p.rendered, g.json["rendered"][name].get<std::string>()) << name;
    EXPECT_EQ(p.ids, g.ids("ids." + name)) << name;
    EXPECT_EQ(!p.lost.empty(), g.json["truncated"][name].get<bool>()) << name;
  }
  // Without a template of its own, the tokenizer gets Qwen3's.
  testing::TempDir bare;
  fs::copy_file(tiny() / "tokenizer/tokenizer.json", bare / "tokenizer.json");
  DQ_ASSERT_OK(const ChatTemplate built_in, z_image_template(bare / "tokenizer.json"));
  DQ_ASSERT_OK(const ZImagePrompt p, z_image_prompt(*tokenizer, built_in, "cat"));
  EXPECT_EQ(p.rendered, g.json["rendered"]["short"].get<std::string>());
}

TEST(ZImage, ACutPromptSaysWhatWasLost) {
  const auto engine = open({.model = tiny()});
  ASSERT_TRUE(engine);
  GenerateRequest r;
  const Golden tokens = golden("zimage-tiny/golden/tokens");
  r.prompts = {tokens.json["prompts"]["long"].get<std::string>() + " THE LAST WORDS"};
  r.width = r.height = 32;
  r.num_inference_steps = 1;
  const Drawn done = draw(*engine, r);
  EXPECT_THAT(done.result.notes, ::testing::Contains(::testing::AllOf(HasSubstr("cut to 512"), HasSubstr("lost: '"))));
}

TEST(ZImage, GuidanceKeepsToTheNorm) {
  const Tensor pos({2, 2}, {3, 4, 1, 0}), neg({2, 2}, {0, 0, 1, 0});
  Tensor out;
  z_image_guide(pos, neg, {.scale = 1}, out);
  EXPECT_EQ(out.data, (std::vector<float>{6, 8, 1, 0}));
  z_image_guide(pos, neg, {.scale = 1, .normalization = 1}, out);
  EXPECT_EQ(out.data, (std::vector<float>{3, 4, 1, 0}));
  z_image_guide(pos, neg, {.scale = 1, .normalization = 1.5f}, out);
  EXPECT_EQ(out.data, (std::vector<float>{4.5f, 6, 1, 0}));
}

/// Copies tensors under other names.
void write_as(SafetensorsWriter& writer, const fs::path& from,
              const std::function<std::string(const std::string&)>& rename) {
  DQ_ASSERT_OK(const auto source, TensorSource::open(from));
  for (const TensorInfo& t : source->tensors()) {
    const auto added = writer.add(rename(t.name), t.dtype, t.shape, source->bytes(t));
    ASSERT_TRUE(added.ok()) << added.error().message;
  }
}
std::string replace_all(std::string s, const std::string& from, const std::string& to) {
  for (size_t i = s.find(from); i != std::string::npos; i = s.find(from, i + to.size())) s.replace(i, from.size(), to);
  return s;
}
std::string comfy_transformer(std::string n) {
  for (const auto& [from, to] :
       {std::pair{"all_final_layer.2-1.", "final_layer."}, std::pair{"all_x_embedder.2-1.", "x_embedder."},
        std::pair{".attention.norm_q.", ".attention.q_norm."}, std::pair{".attention.norm_k.", ".attention.k_norm."},
        std::pair{".attention.to_out.0.", ".attention.out."}})
    n = replace_all(n, from, to);
  return n;
}
/// The original autoencoder code's names, from the map that reads them.
std::string ldm_vae(const std::string& name) {
  auto json = read_json(tiny() / "vae/config.json");
  auto config = vae::Config::parse(*json, "config.json");
  std::string out = name;
  const bool decoder = name.starts_with("decoder.");
  for (const NameMap::Alias& a : vae::name_map(*config).aliases) {
    if (a.from.ends_with("quant_conv.")) continue;
    const bool up = a.from.starts_with("up."), down = a.from.starts_with("down.");
    if ((up && !decoder) || (down && decoder)) continue;
    out = replace_all(out, a.to, a.from);
  }
  return out;
}

std::vector<uint8_t> picture(Engine& engine) {
  GenerateRequest r;
  r.prompts = {"cat"};
  r.seeds = {1};
  r.width = r.height = 64;
  r.num_inference_steps = 2;
  r.guidance_scale = 0.0f;
  r.shift = 3.0f;
  return draw(engine, r).result.images.at(0).image.pixels;
}

TEST(ZImage, SplitFilesAndSingleFilesGiveTheSamePicture) {
  const auto directory = open({.model = tiny()});
  ASSERT_TRUE(directory);
  const std::vector<uint8_t> expected = picture(*directory);

  testing::TempDir dir;
  const auto write = [&](const char* file, const std::function<void(SafetensorsWriter&)>& fill) {
    auto writer = SafetensorsWriter::create(dir / file);
    ASSERT_TRUE(writer.ok());
    fill(**writer);
    ASSERT_TRUE((*writer)->finish().ok());
  };
  const auto same = [](const std::string& n) { return n; };
  write("z_image_turbo_bf16.safetensors",
        [&](SafetensorsWriter& w) { write_as(w, tiny() / "transformer", comfy_transformer); });
  write("qwen_3_4b.safetensors", [&](SafetensorsWriter& w) { write_as(w, tiny() / "text_encoder", same); });
  write("ae.safetensors", [&](SafetensorsWriter& w) { write_as(w, tiny() / "vae", ldm_vae); });
  const auto split = open({.transformer = dir / "z_image_turbo_bf16.safetensors",
                           .text_encoder = dir / "qwen_3_4b.safetensors",
                           .vae = dir / "ae.safetensors",
                           .tokenizer = tiny() / "tokenizer"});
  ASSERT_TRUE(split);
  EXPECT_EQ(split->info().defaults.num_inference_steps, 9);
  EXPECT_EQ(picture(*split), expected);

  write("everything.safetensors", [&](SafetensorsWriter& w) {
    write_as(w, tiny() / "transformer", [](const auto& n) { return "model.diffusion_model." + comfy_transformer(n); });
    write_as(w, tiny() / "text_encoder", [](const auto& n) { return "text_encoders.qwen3_4b.transformer." + n; });
    write_as(w, tiny() / "vae", [](const auto& n) { return "vae." + ldm_vae(n); });
  });
  const auto single = open({.model = dir / "everything.safetensors", .tokenizer = tiny() / "tokenizer"});
  ASSERT_TRUE(single);
  EXPECT_EQ(single->info().components.size(), 3u);
  EXPECT_EQ(picture(*single), expected);
}

TEST(ZImage, PartsThatDoNotBelongTogetherAreNamed) {
  const fs::path ernie = data("fixtures/ernie-tiny");
  struct Case {
    ModelPaths paths;
    const char* says;
  };
  const Case cases[] = {
      {{.model = tiny(), .text_encoder = ernie / "text_encoder"}, "qwen3"},
      {{.model = tiny(), .vae = ernie / "vae"}, "AutoencoderKL"},
      {{.transformer = tiny() / "transformer", .text_encoder = tiny() / "text_encoder", .vae = tiny() / "vae"},
       "--tokenizer"},
      {{.transformer = tiny() / "transformer"}, "--text-encoder"},
  };
  for (const Case& c : cases) {
    EngineOptions options;
    options.paths = c.paths;
    options.device = "cpu";
    const auto r = Engine::open(options);
    ASSERT_FALSE(r.ok()) << c.says;
    EXPECT_EQ(r.error().code, ErrorCode::bad_input) << r.error().message;
    EXPECT_THAT(r.error().message, HasSubstr(c.says));
  }
}

}  // namespace
}  // namespace danqing
