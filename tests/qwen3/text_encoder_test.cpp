// Text features against transformers' Qwen3Model.
#include <map>

#include "models/qwen3/qwen3.h"
#include "testing/testing.h"

namespace danqing::qwen3 {
namespace {

using danqing::testing::close;
using danqing::testing::data;
using danqing::testing::Golden;
using danqing::testing::golden;

constexpr double kF32 = 1e-5;  // ten times the spread of correct f32 evaluations that the fixture measured

const std::vector<std::string> kPrompts = {"en",    "zh",       "mixed", "emoji",  "empty",
                                           "short", "negative", "long",  "spaces", "special"};

std::shared_ptr<Device> cpu() {
  static const auto device = Device::open("cpu", {.threads = 1});
  EXPECT_TRUE(device.ok());
  return device.ok() ? *device : nullptr;
}

ComponentFiles tiny() {
  ComponentFiles f{.role = "text_encoder", .path = data("fixtures/zimage-tiny/text_encoder")};
  auto source = TensorSource::open(f.path);
  EXPECT_TRUE(source.ok());
  if (source.ok()) f.source = *source;
  auto config = read_json(f.path / "config.json");
  EXPECT_TRUE(config.ok());
  if (config.ok()) f.config = *config;
  return f;
}

TEST(TextEncoder, FeaturesOfEveryPrompt) {
  const Golden g = golden("zimage-tiny/golden/text_f32"), tokens = golden("zimage-tiny/golden/tokens");
  DQ_ASSERT_OK(const auto encoder, load_text_encoder(cpu(), tiny(), {.matrix = DType::f32}));
  for (const std::string& prompt : kPrompts) {
    DQ_ASSERT_OK(const Tensor got, encoder->encode(tokens.ids("ids." + prompt)));
    EXPECT_TRUE(close(got, g.f32("hidden." + prompt), kF32)) << prompt;
  }
}

TEST(TextEncoder, EveryLayerAndTheFinalNorm) {
  const Golden g = golden("zimage-tiny/golden/text_f32"), tokens = golden("zimage-tiny/golden/tokens");
  DQ_ASSERT_OK(const auto architecture, architecture_of(tiny()));
  DQ_ASSERT_OK(const auto encoder, TextEncoder::load_as(cpu(), tiny(), architecture, true, {.matrix = DType::f32}, {}));
  std::map<std::string, Tensor> taps;
  DQ_ASSERT_OK(const Tensor got,
               encoder->encode(tokens.ids("ids.mixed"), [&](const std::string& n, const Tensor& t) { taps[n] = t; }));
  EXPECT_TRUE(close(got, g.f32("hidden.mixed"), kF32));
  ASSERT_EQ(taps.size(), 4u);
  for (const auto& [name, t] : taps) EXPECT_TRUE(close(t, g.f32("all.mixed." + name.substr(4)), kF32)) << name;
}

TEST(TextEncoder, Bf16Rule) {
  const Golden g = golden("zimage-tiny/golden/text_f32"), tokens = golden("zimage-tiny/golden/tokens");
  DQ_ASSERT_OK(const auto encoder, load_text_encoder(cpu(), tiny(), {.matrix = DType::bf16}));
  // The fixture page's rule: at most 1.5 times torch's own bf16 error against f32.
  const double measured = g.json["measured"]["bf16_vs_f32"]["rel_l2"].get<double>();
  for (const std::string& prompt : kPrompts) {
    DQ_ASSERT_OK(const Tensor got, encoder->encode(tokens.ids("ids." + prompt)));
    EXPECT_TRUE(close(got, g.f32("hidden." + prompt), 1.5 * measured)) << prompt;
  }
}

TEST(TextEncoder, BatchedEqualsSingle) {
  const Golden g = golden("zimage-tiny/golden/text_f32"), tokens = golden("zimage-tiny/golden/tokens");
  DQ_ASSERT_OK(const auto encoder, load_text_encoder(cpu(), tiny(), {.matrix = DType::f32}));
  DQ_ASSERT_OK(const auto got, encoder->encode_batch({tokens.ids("ids.short"), tokens.ids("ids.emoji")}));
  EXPECT_TRUE(close(got[0], g.f32("hidden.short"), kF32));
  EXPECT_TRUE(close(got[1], g.f32("hidden.emoji"), kF32));
}

}  // namespace
}  // namespace danqing::qwen3
