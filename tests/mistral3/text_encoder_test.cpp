// Prompt features against transformers, on the tiny text encoder of the fixtures.
#include <gmock/gmock.h>

#include "mistral3/stack_files.h"
#include "models/mistral3/model.h"

namespace danqing::mistral3 {
namespace {

using danqing::testing::close;
using danqing::testing::difference;
using danqing::testing::golden;
using ::testing::HasSubstr;

constexpr const char* kPrompts[] = {"en",    "zh",       "mixed", "emoji",  "empty",
                                    "short", "negative", "long",  "spaces", "special"};
// Ten times the spread of correct f32 evaluations that was measured beside the golden (1.1e-6); the smallest visible
// mistake (eps 1e-6 for 1e-5) moves the features by 2.6e-5.
constexpr double kF32Tolerance = 1e-5;

std::vector<int32_t> ids(const std::string& prompt) { return golden("ernie-tiny/golden/tokens").ids("ids." + prompt); }

std::unique_ptr<TextEncoder> load(const ComponentFiles& files, const WeightPolicy& policy = kF32) {
  auto r = TextEncoder::load(cpu(), files, policy);
  EXPECT_TRUE(r.ok()) << (r.ok() ? "" : r.error().message);
  return r.ok() ? std::move(r).value() : nullptr;
}

TEST(TextEncoder, FeaturesEqualTransformers) {
  const auto encoder = load(tiny("text_encoder"));
  ASSERT_TRUE(encoder);
  const auto g = golden("ernie-tiny/golden/text_f32");
  for (const std::string p : kPrompts) {
    DQ_ASSERT_OK(const Tensor t, encoder->encode(ids(p)));
    EXPECT_TRUE(close(t, g.f32("hidden." + p), kF32Tolerance)) << p;
  }
}

TEST(TextEncoder, EveryHiddenStateEqualsTransformers) {
  DQ_ASSERT_OK(const auto encoder, TextEncoder::load_all(cpu(), tiny("text_encoder"), kF32));
  const auto g = golden("ernie-tiny/golden/text_f32");
  std::vector<std::string> names;
  DQ_ASSERT_OK(const Tensor features, encoder->encode(ids("mixed"), [&](const std::string& name, const Tensor& t) {
    names.push_back(name);
    EXPECT_TRUE(close(t, g.f32("all.mixed." + name.substr(4)), kF32Tolerance)) << name;
  }));
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("all.0", "all.1", "all.2", "all.3"));
  EXPECT_TRUE(close(features, g.f32("hidden.mixed"), kF32Tolerance));
}

TEST(TextEncoder, TapsOfOneTokenKeepTheirShape) {
  const auto encoder = load(tiny("text_encoder"));
  ASSERT_TRUE(encoder);
  int count = 0;
  DQ_ASSERT_OK(const Tensor t, encoder->encode(ids("empty"), [&](const std::string&, const Tensor& tap) {
    EXPECT_EQ(tap.shape, (Shape{1, 96}));
    ++count;
  }));
  EXPECT_EQ(count, 3);  // all.0 .. all.2: the last layer is not there
  EXPECT_EQ(t.shape, (Shape{1, 96}));
}

TEST(TextEncoder, YarnRampAndQueryScaleEqualTransformers) {
  const auto g = golden("ernie-tiny/golden/text_llama4_scale");
  const std::pair<int, const char*> cases[] = {{64, "long"}, {16, "mixed"}, {16, "en"}};
  for (const auto& [original, prompt] : cases) {
    ComponentFiles files = tiny("text_encoder");
    (*files.config)["text_config"]["rope_parameters"]["original_max_position_embeddings"] = original;
    const auto encoder = load(files);
    ASSERT_TRUE(encoder);
    DQ_ASSERT_OK(const Tensor t, encoder->encode(ids(prompt)));
    const std::string key = "original" + std::to_string(original) + ".hidden." + prompt;
    EXPECT_TRUE(close(t, g.f32(key), kF32Tolerance)) << key;
  }
}

// Rounding to bf16 is noise, so by the fixtures' rule: error to the f32 golden at most 1.5 times the error torch's bf16
// has there, distance to torch's bf16 at most twice that error.
TEST(TextEncoder, Bf16IsAsCloseAsTorchsBf16) {
  const auto encoder = load(tiny("text_encoder"), kBf16);
  ASSERT_TRUE(encoder);
  const auto f32 = golden("ernie-tiny/golden/text_f32"), bf16 = golden("ernie-tiny/golden/text_bf16");
  for (const std::string p : kPrompts) {
    const double torch = bf16.json["measured"]["bf16_vs_f32"][p]["rel_l2"].get<double>();
    DQ_ASSERT_OK(const Tensor t, encoder->encode(ids(p)));
    EXPECT_TRUE(close(t, f32.f32("hidden." + p), 1.5 * torch)) << p;
    EXPECT_TRUE(close(t, bf16.f32("hidden." + p), 2 * torch)) << p;
  }
}

TEST(TextEncoder, StoredDtypeAndQuantisedWeightsStayNearF32) {
  const auto g = golden("ernie-tiny/golden/text_f32");
  const auto stored = load(tiny("text_encoder"), {});
  const auto q8 = load(tiny("text_encoder"), {.matrix = DType::q8_0});
  ASSERT_TRUE(stored && q8);
  DQ_ASSERT_OK(const Tensor a, stored->encode(ids("mixed")));
  EXPECT_TRUE(close(a, g.f32("hidden.mixed"), 0.017));  // 1.5 times torch's bf16 error, as above
  DQ_ASSERT_OK(const Tensor b, q8->encode(ids("mixed")));
  // 8 bits with one scale for 32 values: about 1/256 of each block's peak, a few times that over two layers.
  EXPECT_TRUE(close(b, g.f32("hidden.mixed"), 0.03));
  EXPECT_LT(q8->weight_bytes(), stored->weight_bytes());
}

TEST(TextEncoder, BatchEqualsSingleRuns) {
  const auto encoder = load(tiny("text_encoder"));
  ASSERT_TRUE(encoder);
  const std::vector<std::vector<int32_t>> prompts{ids("short"), ids("emoji"), ids("empty"), ids("en")};
  DQ_ASSERT_OK(const auto batch, encoder->encode_batch(prompts));
  ASSERT_EQ(batch.size(), prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    DQ_ASSERT_OK(const Tensor single, encoder->encode(prompts[i]));
    EXPECT_TRUE(close(batch[i], single, 1e-6)) << i;  // the same f32 sums, at most in another order
  }
  DQ_ASSERT_OK(const auto none, encoder->encode_batch({}));
  EXPECT_TRUE(none.empty());
}

/// Longer than one group of queries (1024), no multiple of it.
std::vector<int32_t> long_ids(size_t n) {
  std::vector<int32_t> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<int32_t>((i * 7919 + i / 13) % 2560);
  return v;
}

TEST(TextEncoder, LongPromptsAttendInGroupsWithTheSameResult) {
  const auto encoder = load(tiny("text_encoder"));
  ASSERT_TRUE(encoder);
  const auto all = long_ids(2500);
  DQ_ASSERT_OK(const Tensor whole, encoder->encode(all));
  EXPECT_EQ(whole.shape, (Shape{2500, 96}));
  for (const size_t n : {size_t{700}, size_t{1024}, size_t{1500}}) {  // causal: a prefix has the features it has alone
    DQ_ASSERT_OK(const Tensor prefix, encoder->encode(std::span(all).first(n)));
    EXPECT_TRUE(close(slice(whole, 0, static_cast<int64_t>(n)), prefix, 2e-6)) << n;  // f32 sums in another order
  }
}

TEST(TextEncoder, SlidingWindowForgetsWhatIsOutsideIt) {
  ComponentFiles files = tiny("text_encoder");
  (*files.config)["text_config"]["sliding_window"] = 8;
  const auto encoder = load(files);
  ASSERT_TRUE(encoder);
  auto a = long_ids(1300), b = a;
  b[0] = (b[0] + 1) % 2560;
  DQ_ASSERT_OK(const Tensor x, encoder->encode(a));
  DQ_ASSERT_OK(const Tensor y, encoder->encode(b));
  // Two layers see 2 * (8 - 1) positions back.
  EXPECT_GT(difference(slice(x, 13, 2), slice(y, 13, 2)).rel_l2, 1e-6);
  EXPECT_EQ(difference(slice(x, 15, 1285), slice(y, 15, 1285)).max_abs, 0);
  const auto full = load(tiny("text_encoder"));
  DQ_ASSERT_OK(const Tensor z, full->encode(a));
  EXPECT_TRUE(close(slice(x, 0, 8), slice(z, 0, 8), 2e-6));
  EXPECT_GT(difference(slice(x, 20, 8), slice(z, 20, 8)).rel_l2, 1e-2);
}

TEST(TextEncoder, ReadsEveryExportersNames) {
  const ComponentFiles files = tiny("text_encoder");
  const auto expected = golden("ernie-tiny/golden/text_f32").f32("hidden.short");
  const std::string stored = "language_model.model.";
  for (const std::string prefix : {"model.language_model.", "language_model.", "model.", "text_encoder.", ""}) {
    ComponentFiles other = files;
    other.source = renamed(*files.source, [&](const std::string& n) {
      return n.starts_with(stored) ? prefix + n.substr(stored.size()) : n;
    });
    const auto encoder = load(other);
    ASSERT_TRUE(encoder) << prefix;
    DQ_ASSERT_OK(const Tensor t, encoder->encode(ids("short")));
    EXPECT_TRUE(close(t, expected, kF32Tolerance)) << prefix;
  }
}

TEST(TextEncoder, NeedsNoConfigForABareFile) {
  ComponentFiles files = tiny("text_encoder");
  files.config.reset();
  const auto encoder = load(files);
  ASSERT_TRUE(encoder);
  DQ_ASSERT_OK(const Tensor t, encoder->encode(ids("mixed")));
  EXPECT_TRUE(close(t, golden("ernie-tiny/golden/text_f32").f32("hidden.mixed"), kF32Tolerance));
}

TEST(TextEncoder, DoesNotNeedTheLastLayerOrTheNorm) {
  ComponentFiles files = tiny("text_encoder");
  files.source = renamed(*files.source, [](const std::string& n) {
    return n.find("layers.2.") != std::string::npos || n.find("model.norm.") != std::string::npos ? std::string() : n;
  });
  EXPECT_TRUE(load(files));
  const auto all = TextEncoder::load_all(cpu(), files, kF32);
  ASSERT_FALSE(all.ok());
  EXPECT_EQ(all.error().code, ErrorCode::bad_input);
  EXPECT_THAT(all.error().message, HasSubstr("layers.2."));
}

TEST(TextEncoder, RefusesBadIds) {
  const auto encoder = load(tiny("text_encoder"));
  ASSERT_TRUE(encoder);
  for (const std::vector<int32_t>& bad : {std::vector<int32_t>{}, {1, 2560}, {-1}, {INT32_MAX}}) {
    const auto r = encoder->encode(bad);
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.error().code, ErrorCode::usage);
    EXPECT_FALSE(encoder->encode_batch({{1}, bad}).ok());
  }
  ComponentFiles files = tiny("text_encoder");
  (*files.config)["text_config"]["max_position_embeddings"] = 4;
  const auto small = load(files);
  ASSERT_TRUE(small);
  EXPECT_TRUE(small->encode(std::vector<int32_t>{1, 2, 3, 4}).ok());
  const auto r = small->encode(std::vector<int32_t>{1, 2, 3, 4, 5});
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.error().message, HasSubstr("max_position_embeddings"));
}

TEST(TextEncoder, RefusesFilesThatDoNotFitTheConfig) {
  ComponentFiles files = tiny("text_encoder");
  (*files.config)["text_config"]["hidden_size"] = 64;
  const auto wrong = TextEncoder::load(cpu(), files, kF32);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code, ErrorCode::bad_input);
  EXPECT_THAT(wrong.error().message, HasSubstr("[2560, 96]"));
  files.source.reset();
  EXPECT_FALSE(TextEncoder::load(cpu(), files, kF32).ok());
}

}  // namespace
}  // namespace danqing::mistral3
