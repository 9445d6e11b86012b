// Foreign names to ours: prefixes, aliases, shapes, and what cannot be matched.
#include <gtest/gtest.h>

#include "checkpoint/tensor_spec.h"
#include "testing/testing.h"

namespace danqing {
namespace {

std::shared_ptr<const TensorSource> source_of(const std::vector<std::pair<std::string, Shape>>& tensors) {
  std::vector<TensorInfo> infos;
  uint64_t offset = 0;
  for (const auto& [name, shape] : tensors) {
    const auto bytes = static_cast<uint64_t>(element_count(shape)) * 4;
    infos.push_back({.name = name, .dtype = DType::f32, .shape = shape, .offset = offset, .bytes = bytes});
    offset += bytes;
  }
  return TensorSource::from_memory(std::move(infos), std::vector<std::byte>(offset));
}

const std::vector<TensorSpec> kSpecs = {{"x_embedder.weight", {4, 2, 1, 1}, WeightUse::kernel},
                                        {"layers.0.q.weight", {4, 4}},
                                        {"norm.weight", {4}, WeightUse::vector}};
const NameMap kNames{.prefixes = {"", "model.diffusion_model.", "transformer.", "model."}};

TEST(Bind, EveryPrefix) {
  for (const std::string& prefix : kNames.prefixes) {
    const auto source = source_of({{prefix + "x_embedder.weight", {4, 2, 1, 1}},
                                   {prefix + "layers.0.q.weight", {4, 4}},
                                   {prefix + "norm.weight", {4}}});
    DQ_ASSERT_OK(const BoundTensors b, danqing::bind(source, kSpecs, kNames, "test"));
    ASSERT_EQ(b.tensors.size(), 3u);
    EXPECT_TRUE(b.unused.empty());
    for (const TensorSpec& s : kSpecs) EXPECT_EQ(b.find(s.name)->stored->name, prefix + s.name);
    EXPECT_EQ(b.find("none"), nullptr);
  }
}

TEST(Bind, PrefixOfTheRoleBeforeThePrefixOfTheModel) {
  const NameMap names{.prefixes = {"language_model.model.", "model.", "text_encoder.", ""}};
  const std::vector<TensorSpec> specs = {{"a.weight", {1}}, {"b.weight", {1}}};
  for (const std::string& prefix :
       std::vector<std::string>{"text_encoder.model.", "text_encoder.language_model.model.", "text_encoder."})
    EXPECT_TRUE(danqing::bind(source_of({{prefix + "a.weight", {1}}, {prefix + "b.weight", {1}}, {"a.bias", {1}}}),
                              specs, names, "test")
                    .ok())
        << prefix;
}

TEST(Bind, OneFileServesSeveralComponents) {
  const auto source = source_of({{"model.diffusion_model.x_embedder.weight", {4, 2}},
                                 {"model.diffusion_model.layers.0.q.weight", {4, 4}},
                                 {"model.diffusion_model.norm.weight", {4}},
                                 {"vae.norm.weight", {9}},
                                 {"text_encoders.norm.weight", {7}}});
  DQ_ASSERT_OK(const BoundTensors transformer, danqing::bind(source, kSpecs, kNames, "transformer"));
  EXPECT_TRUE(transformer.unused.empty());  // the others belong to other components
  DQ_ASSERT_OK(const BoundTensors vae,
               danqing::bind(source, {{"norm.weight", {9}}}, {.prefixes = {"", "vae."}}, "vae"));
  EXPECT_EQ(vae.find("norm.weight")->stored->shape, Shape{9});
}

TEST(Bind, MatricesAndOneByOneKernelsAreInterchangeable) {
  const auto flat = source_of({{"k", {4, 2}}, {"m", {4, 2, 1, 1}}});
  const std::vector<TensorSpec> specs = {{"k", {4, 2, 1, 1}}, {"m", {4, 2}}};
  EXPECT_TRUE(danqing::bind(flat, specs, {}, "test").ok());
  for (const Shape& other :
       {Shape{2, 4}, Shape{4, 2, 1}, Shape{1, 1, 4, 2}, Shape{8}, Shape{4, 2, 1, 2}, Shape{4, 2, 3, 3}}) {
    const auto r = danqing::bind(source_of({{"k", other}, {"m", {4, 2}}}), specs, {}, "test");
    ASSERT_FALSE(r.ok()) << to_string(other);
    EXPECT_NE(r.error().message.find("expected shape [4, 2, 1, 1], got " + to_string(other)), std::string::npos);
  }
}

TEST(Bind, Aliases) {
  const NameMap names{.prefixes = {"", "vae."},
                      .aliases = {{"decoder.post_quant_conv.", "post_quant_conv."},
                                  {"encoder.quant_conv.", "quant_conv."},
                                  {"mid.attn_1.q.", "mid_block.attentions.0.to_q."},
                                  {"mid.", "middle."},
                                  {"norm_out.", "conv_norm_out."}}};
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"decoder.post_quant_conv.weight", "post_quant_conv.weight"},
      {"encoder.quant_conv.bias", "quant_conv.bias"},
      {"decoder.mid.attn_1.q.weight", "decoder.mid_block.attentions.0.to_q.weight"},  // the longest match
      {"decoder.mid.other", "decoder.middle.other"},
      {"decoder.norm_out.weight", "decoder.conv_norm_out.weight"},
      {"encoder.conv_norm_out.weight", "encoder.conv_norm_out.weight"},  // not within a part of a name
      {"mid.x.mid.y", "middle.x.middle.y"},
  };
  for (const char* prefix : {"", "vae."})
    for (const auto& [foreign, ours] : pairs) {
      const auto r = danqing::bind(source_of({{prefix + foreign, {1}}}), {{ours, {1}}}, names, "test");
      EXPECT_TRUE(r.ok()) << prefix << foreign << ": " << (r.ok() ? "" : r.error().message);
    }
}

TEST(Bind, HeadOutsideThePrefixOfTheBody) {
  const NameMap names{.prefixes = {"language_model.model.", "model.", ""},
                      .aliases = {{"language_model.lm_head.", "lm_head."}}};
  const std::vector<TensorSpec> specs = {{"a", {1}}, {"b", {1}}, {"lm_head.weight", {3}}};
  for (const auto& [body, head] :
       {std::pair{"model.", "lm_head.weight"}, std::pair{"language_model.model.", "language_model.lm_head.weight"}}) {
    DQ_ASSERT_OK(const BoundTensors b,
                 danqing::bind(source_of({{body + std::string("a"), {1}}, {body + std::string("b"), {1}}, {head, {3}}}),
                               specs, names, "test"));
    EXPECT_EQ(b.find("lm_head.weight")->stored->name, head);
  }
}

TEST(Bind, TwoNamesForOneAreAnError) {
  const NameMap names{.aliases = {{"decoder.quant.", "quant."}}};
  const auto r =
      danqing::bind(source_of({{"decoder.quant.w", {1}}, {"quant.w", {1}}}), {{"quant.w", {1}}}, names, "test");
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().message,
            "[checkpoint] (memory): expected one tensor for 'quant.w', got 'decoder.quant.w' and 'quant.w'");
}

TEST(Bind, MissingTensorNamesItAndCountsTheOthers) {
  const auto r = danqing::bind(source_of({{"transformer.norm.weight", {4}}}), kSpecs, kNames, "test model");
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::bad_input);
  EXPECT_EQ(r.error().message,
            "[checkpoint] (memory): test model expected tensor 'transformer.x_embedder.weight' [4, 2, 1, 1], got none "
            "(1 more are missing); the file is of no kind known here");
}

TEST(Bind, OptionalAndUnusedAndIgnored) {
  const std::vector<TensorSpec> specs = {{"a", {1}}, {.name = "b", .shape = {1}, .optional = true}};
  const NameMap names{.prefixes = {"m."}, .ignored = {"vision_tower.", "m.projector."}};
  DQ_ASSERT_OK(
      const BoundTensors b,
      danqing::bind(source_of({{"m.a", {1}}, {"m.vision_tower.x", {1}}, {"m.projector.x", {1}}, {"m.stray", {1}}}),
                    specs, names, "test"));
  EXPECT_EQ(b.find("b")->stored, nullptr);
  EXPECT_EQ(b.unused, std::vector<std::string>{"m.stray"});
  // Present, an optional tensor must have its shape.
  EXPECT_FALSE(danqing::bind(source_of({{"m.a", {1}}, {"m.b", {2}}}), specs, names, "test").ok());
}

TEST(Bind, NothingExpectedNothingFound) {
  DQ_ASSERT_OK(const BoundTensors b, danqing::bind(source_of({}), {}, {}, "test"));
  EXPECT_TRUE(b.tensors.empty());
}

}  // namespace
}  // namespace danqing
