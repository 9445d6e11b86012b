// Files without a config are known by their tensors' names, whatever the file is called.
#include <gtest/gtest.h>

#include "checkpoint/kinds.h"
#include "checkpoint/make_files.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using namespace testing;

const std::vector<std::string> kErnie = {"x_embedder.proj.weight", "layers.0.self_attention.to_q.weight",
                                         "layers.0.adaLN_sa_ln.weight", "adaLN_modulation.1.weight",
                                         "final_linear.weight"};
const std::vector<std::string> kZDiffusers = {
    "noise_refiner.0.attention.to_q.weight", "context_refiner.0.attention.to_q.weight",
    "layers.0.attention.to_q.weight", "cap_pad_token", "all_x_embedder.2-1.weight"};
const std::vector<std::string> kZOriginal = {"noise_refiner.0.attention.qkv.weight",
                                             "context_refiner.0.attention.qkv.weight", "layers.0.attention.qkv.weight",
                                             "cap_pad_token", "x_embedder.weight"};
const std::vector<std::string> kMistral = {"embed_tokens.weight", "layers.0.self_attn.q_proj.weight",
                                           "layers.0.mlp.up_proj.weight", "norm.weight"};
const std::vector<std::string> kQwen3 = {"embed_tokens.weight", "layers.0.self_attn.q_proj.weight",
                                         "layers.0.self_attn.q_norm.weight"};
const std::vector<std::string> kVae = {"decoder.conv_in.weight", "decoder.conv_out.weight", "encoder.conv_in.weight"};

std::vector<std::string> with(const std::string& prefix, std::vector<std::string> names,
                              const std::vector<std::string>& more = {}) {
  for (std::string& n : names) n = prefix + n;
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

std::shared_ptr<const TensorSource> source_of(const std::vector<std::string>& names) {
  std::vector<TensorInfo> infos;
  for (const std::string& n : names) infos.push_back({.name = n, .shape = {0}});
  return TensorSource::from_memory(std::move(infos), {});
}

TEST(Recognise, ByNames) {
  struct Row {
    std::vector<std::string> names;
    std::string pipeline, role, description;
  };
  const std::vector<Row> rows = {
      {kErnie, "ErnieImagePipeline", "transformer", "ernie_image transformer"},
      {with("model.diffusion_model.", kErnie), "ErnieImagePipeline", "transformer", "ernie_image transformer"},
      {with("transformer.", kErnie), "ErnieImagePipeline", "transformer", "ernie_image transformer"},
      {kZDiffusers, "ZImagePipeline", "transformer", "z_image transformer"},
      {with("model.diffusion_model.", kZOriginal), "ZImagePipeline", "transformer", "z_image transformer"},
      {with("", kVae, {"bn.running_mean", "bn.running_var"}), "ErnieImagePipeline", "vae", "flux2 vae"},
      {with("vae.", kVae, {"vae.bn.running_mean"}), "ErnieImagePipeline", "vae", "flux2 vae"},
      {with("first_stage_model.", kVae), "", "vae", "AutoencoderKL"},
      {with("language_model.model.", kMistral, {"vision_tower.ln_pre.weight"}), "ErnieImagePipeline", "text_encoder",
       "mistral3 text encoder with vision tower"},
      {with("model.language_model.", kMistral, {"model.vision_tower.ln_pre.weight"}), "ErnieImagePipeline",
       "text_encoder", "mistral3 text encoder with vision tower"},
      {with("model.", kMistral, {"lm_head.weight"}), "ErnieImagePipeline", "pe", "mistral causal language model"},
      {with("model.", kMistral), "ErnieImagePipeline", "text_encoder",
       "mistral language model (text encoder, or prompt enhancer with tied output)"},
      {kMistral, "ErnieImagePipeline", "text_encoder",
       "mistral language model (text encoder, or prompt enhancer with tied output)"},
      {with("model.", kQwen3), "ZImagePipeline", "text_encoder", "qwen3 text encoder"},
      {{"blk.0.attn_q.weight", "token_embd.weight"}, "", "text_encoder", "language model in llama.cpp's names"},
      {{"transformer.layers.0.self_attention.to_q.lora_A.weight",
        "transformer.layers.0.self_attention.to_q.lora_B.weight"},
       "",
       "lora",
       "LoRA adapter"},
      {{"lora_unet_layers_0_attention_to_q.lora_down.weight", "lora_unet_layers_0_attention_to_q.alpha"},
       "",
       "lora",
       "LoRA adapter"},
      {{"base_model.model.layers.0.to_q.lora_A.default.weight"}, "", "lora", "LoRA adapter"},
  };
  for (const Row& r : rows) {
    const auto kind = recognise(*source_of(r.names));
    ASSERT_TRUE(kind.has_value()) << r.description << ": " << r.names[0];
    EXPECT_EQ(kind->pipeline_class, r.pipeline) << r.names[0];
    EXPECT_EQ(kind->role, r.role) << r.names[0];
    EXPECT_EQ(kind->description, r.description) << r.names[0];
  }
}

TEST(Recognise, OtherModelsAreUnknown) {
  EXPECT_FALSE(recognise(*source_of({})).has_value());
  EXPECT_FALSE(recognise(*source_of({"weight", "bias"})).has_value());
  // FLUX, an UNet, CLIP, Qwen2 (biases), and a part of a name in the middle of another
  EXPECT_FALSE(
      recognise(*source_of({"double_blocks.0.img_attn.qkv.weight", "single_blocks.0.linear1.weight"})).has_value());
  EXPECT_FALSE(
      recognise(*source_of({"down_blocks.0.resnets.0.conv1.weight", "conv_in.weight", "conv_out.weight"})).has_value());
  EXPECT_FALSE(recognise(*source_of({"text_model.encoder.layers.0.self_attn.q_proj.weight",
                                     "text_model.embeddings.token_embedding.weight"}))
                   .has_value());
  EXPECT_FALSE(recognise(*source_of(with("model.", kMistral, {"model.layers.0.self_attn.q_proj.bias"}))).has_value());
  EXPECT_FALSE(recognise(*source_of({"mydecoder.conv_in.weight", "mydecoder.conv_out.weight"})).has_value());
}

TEST(Recognise, SeveralComponentsInOneFile) {
  auto names = with("model.diffusion_model.", kErnie);
  for (const auto& n : with("vae.", kVae, {"vae.bn.running_mean"})) names.push_back(n);
  for (const auto& n : with("text_encoder.model.", kMistral)) names.push_back(n);
  const auto kinds = recognise_all(*source_of(names));
  ASSERT_EQ(kinds.size(), 3u);
  EXPECT_EQ(kinds[0].role, "transformer");
  EXPECT_EQ(kinds[1].role, "vae");
  EXPECT_EQ(kinds[1].description, "flux2 vae");
  EXPECT_EQ(kinds[2].role, "text_encoder");
}

TEST(Recognise, TheGivenModels) {
  const std::vector<std::pair<std::string, std::string>> files = {
      {"ernie-tiny/transformer", "ernie_image transformer"},
      {"ernie-tiny/transformer_bf16", "ernie_image transformer"},
      {"gguf/ernie-tiny-MIXED.gguf", "ernie_image transformer"},
      {"ernie-tiny/text_encoder", "mistral3 text encoder with vision tower"},
      {"ernie-tiny/vae", "flux2 vae"},
      {"ernie-tiny/pe", "mistral language model (text encoder, or prompt enhancer with tied output)"},
      {"ernie-tiny/golden/lora.safetensors", "LoRA adapter"},
      {"ernie-tiny/golden/lora_diffusion_model_prefix.safetensors", "LoRA adapter"},
  };
  for (const auto& [path, description] : files) {
    DQ_ASSERT_OK(const auto source, TensorSource::open(data("fixtures") / path));
    const auto kind = recognise(*source);
    ASSERT_TRUE(kind.has_value()) << path;
    EXPECT_EQ(kind->description, description);
  }
  DQ_ASSERT_OK(const auto golden, TensorSource::open(data("fixtures/ernie-tiny/golden/vae.safetensors")));
  EXPECT_FALSE(recognise(*golden).has_value());
}

}  // namespace
}  // namespace danqing
