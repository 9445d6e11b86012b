// The given models open: directories, single files, shards, with every tensor readable.
#include <gtest/gtest.h>

#include <map>

#include "checkpoint/checkpoint.h"
#include "checkpoint/kinds.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using testing::data;

uint64_t parameters(const TensorSource& source) {
  uint64_t n = 0;
  for (const TensorInfo& t : source.tensors()) n += static_cast<uint64_t>(element_count(t.shape));
  return n;
}

TEST(OpenCheckpoint, PipelineDirectory) {
  DQ_ASSERT_OK(const Checkpoint c, open_checkpoint({.model = data("fixtures/ernie-tiny")}));
  EXPECT_EQ(c.pipeline_class, "ErnieImagePipeline");
  ASSERT_EQ(c.components.size(), 4u);
  const std::map<std::string, std::string> classes = {{"transformer", "ErnieImageTransformer2DModel"},
                                                      {"text_encoder", "Mistral3Model"},
                                                      {"vae", "AutoencoderKLFlux2"},
                                                      {"pe", "Ministral3ForCausalLM"}};
  for (const auto& [role, class_name] : classes) {
    const ComponentFiles* f = c.find(role);
    ASSERT_NE(f, nullptr) << role;
    EXPECT_EQ(f->class_name, class_name);
    EXPECT_EQ(f->role, role);
    EXPECT_TRUE(f->config.has_value());
  }
  EXPECT_TRUE(c.find("pe")->generation_config.has_value());
  EXPECT_EQ(c.tokenizer, data("fixtures/ernie-tiny/tokenizer"));
  EXPECT_EQ(c.pe_tokenizer, data("fixtures/ernie-tiny/pe_tokenizer"));
  ASSERT_TRUE(c.scheduler.has_value());
  EXPECT_EQ((*c.scheduler)["shift"], 4.0);
  EXPECT_EQ(c.find("unet"), nullptr);
}

TEST(OpenCheckpoint, EveryTensorOfEveryComponentIsReadable) {
  for (const auto& root : {data("fixtures/ernie-tiny"), testing::mini_model()}) {
    DQ_ASSERT_OK(const Checkpoint c, open_checkpoint({.model = root}));
    for (const auto& [role, files] : c.components)
      for (const TensorInfo& t : files.source->tensors()) {
        DQ_ASSERT_OK(const Tensor values, read_f32(*files.source, t.name));
        EXPECT_EQ(values.shape, t.shape);
        for (float v : values.data) ASSERT_TRUE(std::isfinite(v)) << role << " " << t.name;
      }
  }
}

// transformer_bf16 holds the weights of transformer rounded to bf16, in three shards.
TEST(OpenCheckpoint, ShardsHoldTheRoundedWeightsOfTheSingleFile) {
  DQ_ASSERT_OK(const auto single, TensorSource::open(data("fixtures/ernie-tiny/transformer")));
  DQ_ASSERT_OK(const auto sharded, TensorSource::open(data("fixtures/ernie-tiny/transformer_bf16")));
  EXPECT_EQ(single->files().size(), 1u);
  EXPECT_EQ(sharded->files().size(), 3u);
  EXPECT_EQ(parameters(*single), parameters(*sharded));
  for (const TensorInfo& t : single->tensors()) {
    ASSERT_NE(sharded->find(t.name), nullptr) << t.name;
    EXPECT_EQ(sharded->find(t.name)->dtype, DType::bf16);
    DQ_ASSERT_OK(const Tensor a, read_f32(*single, t.name));
    DQ_ASSERT_OK(const Tensor b, read_f32(*sharded, t.name));
    for (size_t i = 0; i < a.data.size(); ++i) ASSERT_EQ(round_bf16(a.data[i]), b.data[i]) << t.name << " " << i;
  }
}

}  // namespace
}  // namespace danqing
