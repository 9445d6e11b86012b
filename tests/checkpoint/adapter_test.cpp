// LoRA files: names of every trainer, ranks, alpha, and what is refused.
#include "checkpoint/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using ::testing::HasSubstr;

struct Entry {
  std::string name;
  Shape shape;
  std::vector<float> values;
};

std::filesystem::path write(const testing::TempDir& dir, const std::vector<Entry>& entries) {
  const std::filesystem::path file = dir / "lora.safetensors";
  std::string data;
  Json header;
  for (const Entry& e : entries) {
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(e.values.data()), e.values.size() * 4);
    header[e.name] = {{"dtype", "F32"}, {"shape", e.shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = dump_json(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t n = text.size();
  EXPECT_TRUE(write_file(file, std::string(reinterpret_cast<const char*>(&n), 8) + text + data).ok());
  return file;
}

/// Two matrices of 2 x 3, one of which holds query, key and value of 2 rows each.
BoundTensors model(bool fused) {
  std::vector<TensorInfo> infos;
  std::vector<TensorSpec> specs;
  uint64_t at = 0;
  const auto add = [&](const std::string& name, int64_t rows) {
    TensorInfo t;
    t.name = name, t.shape = {rows, 3}, t.offset = at, t.bytes = static_cast<uint64_t>(rows) * 12;
    at += t.bytes;
    infos.push_back(t);
    specs.push_back({name, t.shape});
  };
  if (fused) {
    add("layers.0.attention.qkv.weight", 6);
  } else {
    for (const char* n : {"to_q", "to_k", "to_v"}) add(std::string("layers.0.attention.") + n + ".weight", 2);
  }
  std::vector<std::byte> bytes(at);
  auto bound = danqing::bind(TensorSource::from_memory(infos, bytes), specs, {}, "test");
  EXPECT_TRUE(bound.ok());
  return std::move(*bound);
}

/// All values of a tensor whose stored ones are zero: the change alone.
std::vector<float> change_of(const BoundTensors& bound, const std::string& name) {
  const BoundTensor* b = bound.find(name);
  std::vector<float> v(static_cast<size_t>(element_count(b->spec.shape)), 0);
  if (b->stored->delta) b->stored->delta->add(0, v);
  return v;
}

const std::vector<float> kA{1, 2, 3}, kB{10, 20};  // rank 1: [1, 3] and [2, 1]
const std::vector<float> kProduct{10, 20, 30, 20, 40, 60};

TEST(Adapter, reads_the_names_of_every_trainer) {
  const testing::TempDir dir;
  for (const auto& [a, b] :
       {std::pair<std::string, std::string>{"transformer.layers.0.attention.to_k.lora_A.weight",
                                            "transformer.layers.0.attention.to_k.lora_B.weight"},
        {"layers.0.attention.to_k.lora_A.default.weight", "layers.0.attention.to_k.lora_B.default.weight"},
        {"base_model.model.layers.0.attention.to_k.lora_A.weight",
         "base_model.model.layers.0.attention.to_k.lora_B.weight"},
        {"diffusion_model.layers.0.attention.to_k.lora_down.weight",
         "diffusion_model.layers.0.attention.to_k.lora_up.weight"},
        {"lora_unet_layers_0_attention_to_k.lora_down.weight", "lora_unet_layers_0_attention_to_k.lora_up.weight"}}) {
    DQ_ASSERT_OK(const auto adapter, Adapter::open(write(dir, {{a, {1, 3}, kA}, {b, {2, 1}, kB}})));
    BoundTensors bound = model(false);
    const AdapterUse use{adapter, 1};
    const auto done = apply_adapters(bound, std::span(&use, 1), {});
    ASSERT_TRUE(done.ok()) << a << ": " << done.error().message;
    EXPECT_EQ(change_of(bound, "layers.0.attention.to_k.weight"), kProduct) << a;
    EXPECT_EQ(change_of(bound, "layers.0.attention.to_q.weight"), std::vector<float>(6, 0)) << a;
  }
}

TEST(Adapter, alpha_and_weight_multiply_and_adapters_add_up) {
  const testing::TempDir dir;
  const std::string m = "layers.0.attention.to_v.";
  DQ_ASSERT_OK(
      const auto adapter,
      Adapter::open(write(
          dir, {{m + "lora_down.weight", {1, 3}, kA}, {m + "lora_up.weight", {2, 1}, kB}, {m + "alpha", {}, {0.5f}}})));
  BoundTensors bound = model(false);
  const std::vector<AdapterUse> uses{{adapter, 2}, {adapter, -1}};
  DQ_ASSERT_OK([[maybe_unused]] const int ok, [&]() -> Result<int> {
    auto r = apply_adapters(bound, uses, {});
    return r ? Result<int>(0) : Result<int>(r.error());
  }());
  EXPECT_EQ(change_of(bound, m + "weight"), (std::vector<float>{5, 10, 15, 10, 20, 30}));
  std::vector<float> middle(3, 1);  // any stretch of the values
  bound.find(m + "weight")->stored->delta->add(2, middle);
  EXPECT_EQ(middle, (std::vector<float>{16, 11, 21}));
}

TEST(Adapter, query_key_and_value_meet_whether_in_one_matrix_or_three) {
  const testing::TempDir dir;
  DQ_ASSERT_OK(const auto separate, Adapter::open(write(dir, {{"layers.0.attention.to_k.lora_A.weight", {1, 3}, kA},
                                                              {"layers.0.attention.to_k.lora_B.weight", {2, 1}, kB}})));
  BoundTensors fused = model(true);
  const AdapterUse one{separate, 1};
  ASSERT_TRUE(apply_adapters(fused, std::span(&one, 1), {}).ok());
  std::vector<float> wanted(18, 0);
  std::copy(kProduct.begin(), kProduct.end(), wanted.begin() + 6);
  EXPECT_EQ(change_of(fused, "layers.0.attention.qkv.weight"), wanted);

  DQ_ASSERT_OK(const auto together,
               Adapter::open(write(dir, {{"layers.0.attention.qkv.lora_A.weight", {1, 3}, kA},
                                         {"layers.0.attention.qkv.lora_B.weight", {6, 1}, {0, 0, 10, 20, 1, 1}}})));
  BoundTensors three = model(false);
  const AdapterUse other{together, 1};
  ASSERT_TRUE(apply_adapters(three, std::span(&other, 1), {}).ok());
  EXPECT_EQ(change_of(three, "layers.0.attention.to_k.weight"), kProduct);
  EXPECT_EQ(change_of(three, "layers.0.attention.to_v.weight"), (std::vector<float>{1, 2, 3, 1, 2, 3}));
}

TEST(Adapter, what_is_no_adapter_of_this_model_is_named) {
  const testing::TempDir dir;
  const auto refused = [&](const std::vector<Entry>& entries, const char* words) {
    const auto adapter = Adapter::open(write(dir, entries));
    if (!adapter) {
      EXPECT_THAT(adapter.error().message, HasSubstr(words));
      return;
    }
    BoundTensors bound = model(false);
    const AdapterUse use{*adapter, 1};
    const auto done = apply_adapters(bound, std::span(&use, 1), {});
    ASSERT_FALSE(done.ok()) << words;
    EXPECT_EQ(done.error().code, ErrorCode::bad_input);
    EXPECT_THAT(done.error().message, HasSubstr(words));
  };
  const std::string k = "layers.0.attention.to_k.";
  refused({{k + "lora_A.weight", {1, 3}, kA}}, "only one of its two halves");
  refused({{k + "lora_A.weight", {1, 3}, kA}, {k + "lora_B.weight", {1, 2}, kB}},
          "expected [rank, in] and [out, rank]");
  refused({{k + "lora_A.weight", {3}, kA}, {k + "lora_B.weight", {2, 1}, kB}}, "expected [rank, in] and [out, rank]");
  refused({{k + "lora_A.weight", {1, 2}, {1, 2}}, {k + "lora_B.weight", {2, 1}, kB}}, "expected to change [2, 3]");
  refused({{k + "lora_A.weight", {1, 3}, kA}, {k + "lora_B.weight", {1, 1}, {1}}}, "expected to change [2, 3]");
  refused(
      {{"layers.9.attention.to_k.lora_A.weight", {1, 3}, kA}, {"layers.9.attention.to_k.lora_B.weight", {2, 1}, kB}},
      "the model has no layers.9.attention.to_k");
  refused({{k + "hada_w1_a", {1, 3}, kA}}, "not supported");
  refused({{k + "dora_scale", {3}, kA}}, "not supported");
  refused({{"weight", {3}, kA}}, "expected lora_A");
  refused({{"text_encoder.x.lora_A.weight", {1, 3}, kA}}, "expected an adapter of the denoiser");
  refused({{k + "lora_A.weight", {1, 3}, kA}, {k + "lora_B.weight", {2, 1}, kB}, {k + "alpha", {2}, {1, 1}}},
          "alpha expected one number");
}

}  // namespace
}  // namespace danqing
