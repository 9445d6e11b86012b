// Models given as a directory, in parts, as one file; and directories that lack or misstate something.
#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>

#include "checkpoint/make_files.h"
#include "testing/testing.h"

namespace danqing {
namespace {

namespace fs = std::filesystem;
using namespace testing;

fs::path tiny(std::string_view part = "") { return data("fixtures/ernie-tiny") / part; }

// A directory whose folders are those of ernie-tiny.
fs::path linked_model(const fs::path& dir, const std::vector<std::string>& without = {}) {
  for (const auto& e : fs::directory_iterator(tiny()))
    if (e.is_directory() && std::find(without.begin(), without.end(), e.path().filename()) == without.end())
      fs::create_directory_symlink(e.path(), dir / e.path().filename());
  fs::copy_file(tiny("model_index.json"), dir / "model_index.json");
  return dir;
}

Json index_json() {
  auto r = read_json(tiny("model_index.json"));
  return r.ok() ? *r : Json();
}

TEST(OpenCheckpointParts, SplitFiles) {
  const TempDir dir;
  // As other programs lay them out: bare files with names of their own and no configs beside them.
  fs::copy_file(tiny("transformer/diffusion_pytorch_model.safetensors"), dir / "dit.safetensors");
  fs::copy_file(tiny("text_encoder/model.safetensors"), dir / "te.safetensors");
  fs::copy_file(tiny("vae/diffusion_pytorch_model.safetensors"), dir / "ae.sft");
  ModelPaths paths{
      .transformer = dir / "dit.safetensors", .text_encoder = dir / "te.safetensors", .vae = dir / "ae.sft"};
  paths.tokenizer = tiny("tokenizer");
  paths.scheduler = tiny("scheduler");
  DQ_ASSERT_OK(const Checkpoint c, open_checkpoint(paths));
  EXPECT_EQ(c.pipeline_class, "ErnieImagePipeline");
  EXPECT_EQ(c.components.size(), 3u);
  for (const auto& [role, files] : c.components) EXPECT_FALSE(files.config.has_value()) << role;
  EXPECT_EQ(c.tokenizer, paths.tokenizer);
  EXPECT_TRUE(c.scheduler.has_value());
}

TEST(OpenCheckpointParts, FileOverridesDirectoryAndKeepsItsConfig) {
  DQ_ASSERT_OK(const Checkpoint c,
               open_checkpoint({.model = tiny(), .transformer = data("fixtures/gguf/ernie-tiny-Q8_0.gguf")}));
  const ComponentFiles* t = c.find("transformer");
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->source->format(), TensorSource::Format::gguf);
  EXPECT_EQ(t->class_name, "ErnieImageTransformer2DModel");
  ASSERT_TRUE(t->config.has_value());
  EXPECT_EQ((*t->config)["hidden_size"], 256);
  EXPECT_EQ(c.components.size(), 4u);
}

TEST(OpenCheckpointParts, DirectoryOverridesDirectory) {
  DQ_ASSERT_OK(const Checkpoint c, open_checkpoint({.model = tiny(), .transformer = tiny("transformer_bf16")}));
  EXPECT_EQ(c.find("transformer")->source->files().size(), 3u);
  EXPECT_EQ(c.find("transformer")->path, tiny("transformer_bf16"));
}

TEST(OpenCheckpointParts, OverrideStandsInForAMissingFolder) {
  const TempDir dir;
  linked_model(dir.path(), {"vae"});
  EXPECT_FALSE(open_checkpoint({.model = dir.path()}).ok());
  DQ_ASSERT_OK(const Checkpoint c, open_checkpoint({.model = dir.path(), .vae = tiny("vae")}));
  EXPECT_NE(c.find("vae"), nullptr);
}

TEST(OpenCheckpointParts, TextEncoderAndEnhancerMayBeOneKind) {
  EXPECT_TRUE(open_checkpoint({.model = tiny(), .pe = tiny("text_encoder")}).ok());
  EXPECT_TRUE(open_checkpoint({.model = tiny(), .text_encoder = tiny("pe")}).ok());
}

TEST(OpenCheckpointSingle, ComponentDirectoryAndFile) {
  DQ_ASSERT_OK(const Checkpoint dir, open_checkpoint({.model = tiny("transformer_bf16")}));
  ASSERT_EQ(dir.components.size(), 1u);
  EXPECT_EQ(dir.find("transformer")->class_name, "ErnieImageTransformer2DModel");
  EXPECT_EQ(dir.pipeline_class, "ErnieImagePipeline");
  // The config beside a component's own file is used; that of another kind of component is not.
  DQ_ASSERT_OK(const Checkpoint file, open_checkpoint({.model = tiny("vae/diffusion_pytorch_model.safetensors")}));
  EXPECT_TRUE(file.find("vae")->config.has_value());
  const TempDir temp;
  fs::copy_file(tiny("vae/diffusion_pytorch_model.safetensors"), temp / "vae.safetensors");
  fs::copy_file(tiny("transformer/config.json"), temp / "config.json");
  DQ_ASSERT_OK(const Checkpoint other, open_checkpoint({.model = temp / "vae.safetensors"}));
  EXPECT_FALSE(other.find("vae")->config.has_value());
  EXPECT_EQ(other.find("vae")->class_name, "");
  DQ_ASSERT_OK(const Checkpoint pe, open_checkpoint({.model = tiny("pe")}));
  EXPECT_NE(pe.find("pe"), nullptr);  // its class tells it from a text encoder
}

TEST(OpenCheckpointSingle, OneFileForSeveralRoles) {
  const TempDir dir;
  const auto path = put(dir.path(), "all.safetensors",
                        safetensors_of({"model.diffusion_model.layers.0.self_attention.to_q.weight",
                                        "model.diffusion_model.layers.0.adaLN_sa_ln.weight",
                                        "model.diffusion_model.adaLN_modulation.1.weight", "vae.decoder.conv_in.weight",
                                        "vae.decoder.conv_out.weight", "vae.bn.running_mean"}));
  DQ_ASSERT_OK(const Checkpoint c, open_checkpoint({.model = path}));
  ASSERT_EQ(c.components.size(), 2u);
  EXPECT_EQ(c.find("transformer")->source, c.find("vae")->source);
  EXPECT_EQ(c.find("vae")->role, "vae");
  EXPECT_EQ(c.pipeline_class, "ErnieImagePipeline");
}

TEST(OpenCheckpointDirectory, NullComponentsAreAbsent) {
  const TempDir dir;
  linked_model(dir.path(), {"pe", "pe_tokenizer"});
  Json index = index_json();
  index["pe"] = {nullptr, nullptr};
  index["pe_tokenizer"] = {nullptr, nullptr};
  put(dir.path(), "model_index.json", dump_json(index));
  DQ_ASSERT_OK(const Checkpoint c, open_checkpoint({.model = dir.path()}));
  EXPECT_EQ(c.find("pe"), nullptr);
  EXPECT_TRUE(c.pe_tokenizer.empty());
  DQ_ASSERT_OK(const Checkpoint by_index, open_checkpoint({.model = dir / "model_index.json"}));
  EXPECT_EQ(by_index.root, dir.path());
}

TEST(OpenCheckpointDirectory, TheEnhancerMayBeLeftOutAlthoughTheIndexListsIt) {
  for (const char* folder : {"pe", "pe_tokenizer"}) {
    const TempDir dir;
    linked_model(dir.path(), {folder});
    put(dir.path(), "model_index.json", dump_json(index_json()));
    DQ_ASSERT_OK(const Checkpoint c, open_checkpoint({.model = dir.path()}));
    EXPECT_EQ(c.find("pe") == nullptr, folder == std::string_view("pe"));
    EXPECT_EQ(c.pe_tokenizer.empty(), folder == std::string_view("pe_tokenizer"));
  }
}

TEST(OpenCheckpointDirectory, ZImageIsRecognised) {
  const TempDir dir;
  put(dir.path(), "model_index.json", R"({"_class_name":"ZImagePipeline"})");
  // Nothing listed: no components, so nothing to open, but the class must not be the reason.
  const auto r = open_checkpoint({.model = dir.path()});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().message.find("pipeline class"), std::string::npos) << r.error().message;
}

TEST(OpenCheckpointDirectory, PlainWeightsAreTakenBeforeVariants) {
  const std::string plain = safetensors_of({"plain"}), variant = safetensors_of({"variant"});
  const std::string index = R"({"weight_map":{"plain":"diffusion_pytorch_model-00001-of-00001.safetensors"}})";
  struct Row {
    std::vector<std::pair<std::string, std::string>> files;
    std::string want;
  };
  const std::vector<Row> rows = {
      {{{"diffusion_pytorch_model.safetensors", plain}, {"diffusion_pytorch_model.fp16.safetensors", variant}},
       "plain"},
      {{{"model.safetensors", plain}, {"model.bf16.safetensors", variant}, {"consolidated.safetensors", variant}},
       "plain"},
      {{{"diffusion_pytorch_model.fp16.safetensors", variant}}, "variant"},
      {{{"diffusion_pytorch_model.safetensors.index.fp16.json",
         R"({"weight_map":{"variant":"diffusion_pytorch_model.fp16-00001-of-00001.safetensors"}})"},
        {"diffusion_pytorch_model.fp16-00001-of-00001.safetensors", variant}},
       "variant"},
      {{{"other.safetensors", plain}, {"other.fp8.safetensors", variant}}, "plain"},
      {{{"diffusion_pytorch_model.safetensors.index.json", index},
        {"diffusion_pytorch_model-00001-of-00001.safetensors", plain},
        {"diffusion_pytorch_model.fp16.safetensors.index.json", "{}"},
        {"diffusion_pytorch_model.fp16-00001-of-00002.safetensors", variant}},
       "plain"},
      {{{"model.safetensors", plain}, {"pytorch_model.bin", "PK\x03\x04"}, {"model.gguf", "GGUF"}}, "plain"},
  };
  for (const Row& r : rows) {
    const TempDir dir;
    for (const auto& [name, bytes] : r.files) put(dir.path(), name, bytes);
    DQ_ASSERT_OK(const auto source, TensorSource::open(dir.path()));
    ASSERT_EQ(source->tensors().size(), 1u);
    EXPECT_EQ(source->tensors()[0].name, r.want) << r.files[0].first;
  }
}

struct Case {
  std::string name, says;
  std::function<ModelPaths(const fs::path&)> make;
  ErrorCode code = ErrorCode::bad_input;
};

// ernie-tiny under an index changed by `change`.
auto index_with(std::function<void(Json&)> change) {
  return [=](const fs::path& dir) {
    linked_model(dir);
    Json index = index_json();
    change(index);
    put(dir, "model_index.json", dump_json(index));
    return ModelPaths{.model = dir};
  };
}
auto index_text(std::string text) {
  return [=](const fs::path& dir) { return put(dir, "model_index.json", text), ModelPaths{.model = dir}; };
}
// ernie-tiny whose folder `part` holds these files instead.
auto part_with(std::string part, std::vector<std::pair<std::string, std::string>> files) {
  return [=](const fs::path& dir) {
    linked_model(dir, {part});
    fs::create_directory(dir / part);
    for (const auto& [name, bytes] : files) put(dir / part, name, bytes);
    return ModelPaths{.model = dir};
  };
}
auto without(std::string part) {
  return [=](const fs::path& dir) { return ModelPaths{.model = linked_model(dir, {part})}; };
}

TEST(OpenCheckpointErrors, EachIsOneClearLine) {
  const auto lora = data("fixtures/ernie-tiny/golden/lora.safetensors");
  const std::vector<Case> cases = {
      {"nothing there", "no such file", [](const fs::path& d) { return ModelPaths{.model = d / "absent"}; }},
      {"empty directory", "got none", [](const fs::path& d) { return ModelPaths{.model = d}; }},
      {"index is no JSON", "not valid JSON", index_text("{")},
      {"index is empty", "not valid JSON", index_text("")},
      {"index is a list", "expected an object", index_text("[]")},
      {"index is a web page", "not valid JSON", index_text("<html>")},
      {"index nested deeply", "nested deeper", index_text(std::string(100000, '['))},
      {"no class", "'_class_name' is missing", index_text("{}")},
      {"class is a number", "expected a string, got 7", index_text(R"({"_class_name":7})")},
      {"unknown class", "ErnieImagePipeline, ZImagePipeline, got FluxPipeline",
       index_text(R"({"_class_name":"FluxPipeline"})")},
      {"class with line breaks", "got a\\x0ab", index_text(R"({"_class_name":"a\nb"})")},
      {"transformer missing", "component 'transformer' (ErnieImageTransformer2DModel)", without("transformer")},
      {"text encoder missing", "component 'text_encoder' (Mistral3Model)", without("text_encoder")},
      {"vae missing", "component 'vae'", without("vae")},
      {"tokenizer missing", "component 'tokenizer'", without("tokenizer")},
      {"scheduler missing", "component 'scheduler'", without("scheduler")},
      {"component is a text", "[library, class] or nulls, got \"x\"", index_with([](Json& j) { j["vae"] = "x"; })},
      {"component is a number", "[library, class] or nulls, got 3", index_with([](Json& j) { j["tokenizer"] = 3; })},
      {"component of three", "[library, class] or nulls", index_with([](Json& j) {
         j["vae"] = {"a", "b", "c"};
       })},
      {"component of numbers", "[library, class] or nulls", index_with([](Json& j) {
         j["vae"] = {1, 2};
       })},
      {"config is a list", "expected a JSON object, got array",
       part_with("vae", {{"config.json", "[]"}, {"model.safetensors", safetensors_of({"a"})}})},
      {"config breaks off", "not valid JSON",
       part_with("vae", {{"config.json", "{\"a\":"}, {"model.safetensors", safetensors_of({"a"})}})},
      {"config in UTF-16", "not valid JSON",
       part_with("vae",
                 {{"config.json", std::string("\xff\xfe{\0}\0", 6)}, {"model.safetensors", safetensors_of({"a"})}})},
      {"scheduler config breaks off", "not valid JSON", part_with("scheduler", {{"scheduler_config.json", "{"}})},
      {"scheduler without config", "component 'scheduler'", part_with("scheduler", {})},
      {"component without weights", "got none", part_with("transformer", {{"config.json", "{}"}})},
      {"component of another kind", "expected a transformer, got flux2 vae",
       [](const fs::path& d) {
         linked_model(d, {"transformer"});
         fs::create_directory_symlink(tiny("vae"), d / "transformer");
         return ModelPaths{.model = d};
       }},
      {"no index beside the folders", "model_index.json",
       [](const fs::path& d) {
         linked_model(d);
         fs::remove(d / "model_index.json");
         return ModelPaths{.model = d};
       }},
      {"override not there", "no such file",
       [](const fs::path& d) { return ModelPaths{.model = tiny(), .vae = d / "v.safetensors"}; }},
      {"override of another kind", "expected a vae, got ernie_image transformer",
       [](const fs::path& d) {
         fs::create_symlink(tiny("transformer/diffusion_pytorch_model.safetensors"), d / "v");
         return ModelPaths{.model = tiny(), .vae = d / "v"};
       }},
      {"override is a pipeline", "whole pipeline",
       [](const fs::path& d) { return ModelPaths{.model = tiny(), .vae = linked_model(d)}; }},
      {"override is a LoRA", "got LoRA adapter",
       [=](const fs::path& d) {
         fs::create_symlink(lora, d / "l");
         return ModelPaths{.model = tiny(), .transformer = d / "l"};
       }},
      {"model is a LoRA", "beside a model",
       [=](const fs::path& d) {
         fs::create_symlink(lora, d / "l");
         return ModelPaths{.model = d / "l"};
       }},
      {"file of unknown tensors", "the first is 'weight'",
       [](const fs::path& d) { return ModelPaths{.model = put(d, "x.safetensors", safetensors_of({"weight"}))}; }},
      {"file without tensors", "no kind known",
       [](const fs::path& d) { return ModelPaths{.model = put(d, "x.safetensors", safetensors("{}"))}; }},
      {"component of unknown class", "got UNet2DModel",
       [](const fs::path& d) {
         put(d, "config.json", R"({"_class_name":"UNet2DModel"})");
         put(d, "model.safetensors", safetensors_of({"weight"}));
         return ModelPaths{.model = d};
       }},
      {"tokenizer not there", "expected a tokenizer",
       [](const fs::path& d) {
         ModelPaths p{.model = tiny()};
         p.tokenizer = d / "t";
         return p;
       }},
      {"scheduler not there", "expected a scheduler_config.json",
       [](const fs::path& d) {
         ModelPaths p{.model = tiny()};
         p.scheduler = d;
         return p;
       }},
      {"nothing given", "got none", [](const fs::path&) { return ModelPaths{}; }, ErrorCode::usage},
  };
  EXPECT_GE(cases.size(), 39u);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const TempDir dir;
    const auto r = open_checkpoint(c.make(dir.path()));
    if (r.ok()) {
      ADD_FAILURE() << "opened";
      continue;
    }
    EXPECT_EQ(r.error().code, c.code);
    EXPECT_NE(r.error().message.find(c.says), std::string::npos) << r.error().message;
    EXPECT_EQ(r.error().message.find('\n'), std::string::npos) << r.error().message;
    const bool names_file = r.error().message.find(dir.path().string()) != std::string::npos;
    EXPECT_TRUE(names_file || c.code == ErrorCode::usage) << r.error().message;
  }
}

// A pipe in place of a file must not hang the program.
TEST(OpenCheckpointErrors, PipesAreRefused) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "x.safetensors").c_str(), 0600), 0);
  EXPECT_FALSE(open_checkpoint({.model = dir / "x.safetensors"}).ok());
  ASSERT_EQ(::mkfifo((dir / "model_index.json").c_str(), 0600), 0);
  EXPECT_FALSE(open_checkpoint({.model = dir.path()}).ok());
}

}  // namespace
}  // namespace danqing
