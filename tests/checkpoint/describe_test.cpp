#include "checkpoint/describe.h"

#include <gtest/gtest.h>

#include "checkpoint/make_files.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using namespace testing;

TEST(Describe, Pipeline) {
  DQ_ASSERT_OK(const Json d, describe_path(data("fixtures/ernie-tiny"), false));
  EXPECT_EQ(d["kind"], "pipeline");
  EXPECT_EQ(d["pipeline_class"], "ErnieImagePipeline");
  ASSERT_EQ(d["components"].size(), 4u);
  uint64_t parameters = 0;
  for (const Json& c : d["components"]) parameters += c["parameters"].get<uint64_t>();
  EXPECT_EQ(d["parameters"], parameters);
  const Json& transformer = d["components"][0];
  EXPECT_EQ(transformer["role"], "transformer");
  EXPECT_EQ(transformer["class"], "ErnieImageTransformer2DModel");
  EXPECT_EQ(transformer["format"], "safetensors");
  EXPECT_EQ(transformer["dtypes"]["f32"]["tensors"], 35);
  EXPECT_EQ(transformer["bytes"].get<uint64_t>(), 4 * transformer["parameters"].get<uint64_t>());
  EXPECT_EQ(d["components"][3]["description"], "mistral causal language model");
  EXPECT_EQ(d["scheduler"]["shift"], 4.0);
  EXPECT_FALSE(transformer.contains("tensor_list"));
  const std::string text = description_text(d);
  for (const char* part : {"ErnieImagePipeline", "transformer: ernie_image transformer", "pe_tokenizer: ", "shift 4.0",
                           "metadata    format = pt"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(Describe, GgufWithTensors) {
  DQ_ASSERT_OK(const Json d, describe_path(data("fixtures/gguf/ernie-tiny-MIXED.gguf"), true));
  EXPECT_EQ(d["kind"], "component");
  EXPECT_EQ(d["description"], "ernie_image transformer");
  const Json& c = d["components"][0];
  EXPECT_EQ(c["format"], "gguf");
  EXPECT_EQ(c["dtypes"].size(), 11u);
  EXPECT_EQ(c["metadata"]["general.architecture"], "ernie_image");
  ASSERT_EQ(c["tensor_list"].size(), 35u);
  EXPECT_NE(description_text(d).find("[256, 96]            text_proj.weight"), std::string::npos)
      << description_text(d);
}

TEST(Describe, ShardsComponentLoraAndUnknown) {
  DQ_ASSERT_OK(const Json shards, describe_path(data("fixtures/ernie-tiny/transformer_bf16"), false));
  EXPECT_EQ(shards["components"][0]["files"].size(), 3u);
  EXPECT_NE(description_text(shards).find("(3 files)"), std::string::npos);
  DQ_ASSERT_OK(const Json lora, describe_path(data("fixtures/ernie-tiny/golden/lora.safetensors"), false));
  EXPECT_EQ(lora["description"], "LoRA adapter");
  DQ_ASSERT_OK(const Json golden, describe_path(data("fixtures/units/units.safetensors"), false));
  EXPECT_EQ(golden["kind"], "tensors");
  EXPECT_EQ(golden["description"], "unknown kind");
}

TEST(Describe, HostileTextStaysOnItsLine) {
  const TempDir dir;
  const std::string header =
      R"({"__metadata__":{"a\nb":"\u001b[2Jx\ny"},"n\r\n":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})";
  DQ_ASSERT_OK(const Json d,
               describe_path(put(dir.path(), "x.safetensors", testing::safetensors(header, "aaaa")), true));
  const std::string text = description_text(d);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(text.find("a\\x0ab = \\x1b[2Jx\\x0ay\n"), std::string::npos) << text;
  EXPECT_NE(text.find("n\\x0d\\x0a\n"), std::string::npos) << text;
}

TEST(Describe, Errors) {
  const TempDir dir;
  EXPECT_FALSE(describe_path(dir.path(), false).ok());
  EXPECT_FALSE(describe_path(dir / "absent", false).ok());
  EXPECT_FALSE(describe_path(put(dir.path(), "x.safetensors", "version https://git-lfs"), false).ok());
  put(dir.path(), "model_index.json", R"({"_class_name":"FluxPipeline"})");
  EXPECT_FALSE(describe_path(dir.path(), false).ok());
}

}  // namespace
}  // namespace danqing
