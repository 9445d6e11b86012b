// The ways in which the transformer is published, made from the tiny model: each must give the picture of the first.
#include "base/float_bits.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "z_image/model_files.h"

namespace danqing::z_image {
namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

/// The original code's names: query, key and value in one matrix.
std::vector<Stored> original_names(const std::string& prefix) {
  std::vector<Stored> out;
  std::map<std::string, std::vector<Stored>> fused;  // by layer, in the order q, k, v
  std::map<std::string, Stored> all;
  for (Stored& t : stored(*tiny_source())) all[t.name] = std::move(t);
  for (auto& [name, t] : all) {
    const std::string layer = name.substr(0, name.find(".to_q.weight"));
    if (name.ends_with(".to_q.weight")) {
      Stored qkv{prefix + layer + ".qkv.weight", t.dtype, {3 * t.shape[0], t.shape[1]}, {}};
      for (const char* part : {".to_q.weight", ".to_k.weight", ".to_v.weight"}) {
        const std::vector<std::byte>& bytes = all[layer + part].bytes;
        qkv.bytes.insert(qkv.bytes.end(), bytes.begin(), bytes.end());
      }
      out.push_back(std::move(qkv));
    } else if (!name.ends_with(".to_k.weight") && !name.ends_with(".to_v.weight")) {
      std::string n = name;
      for (const auto& [from, to] :
           {std::pair{"all_final_layer.2-1.", "final_layer."}, std::pair{"all_x_embedder.2-1.", "x_embedder."},
            std::pair{".attention.norm_q.", ".attention.q_norm."},
            std::pair{".attention.norm_k.", ".attention.k_norm."},
            std::pair{".attention.to_out.0.", ".attention.out."}})
        n = replaced(n, from, to);
      out.push_back({prefix + n, t.dtype, t.shape, t.bytes});
    }
  }
  out.push_back({prefix + "norm_final.weight", DType::bf16, {1}, std::vector<std::byte>(2)});  // of Lumina 2, unused
  return out;
}

/// For each bf16 number, by its bits, the nearest e4m3 number.
const std::vector<uint8_t>& nearest_f8_e4m3() {
  static const std::vector<uint8_t> table = [] {
    std::vector<uint8_t> t(1 << 16, 0);
    for (uint32_t bits = 0; bits < t.size(); ++bits) {
      const float x = bf16_to_f32(static_cast<uint16_t>(bits));
      for (int b = 1; b < 256; ++b) {
        const auto f8 = static_cast<uint8_t>(b);
        if (std::fabs(f8_e4m3_to_f32(f8) - x) < std::fabs(f8_e4m3_to_f32(t[bits]) - x)) t[bits] = f8;
      }
    }
    return t;
  }();
  return table;
}

/// What a case of the goldens gives with these files, without a config.
void expect_same_picture(std::shared_ptr<const TensorSource> source, const std::string& what, double tolerance = kF32) {
  const auto kind = recognise(*source);
  ASSERT_TRUE(kind) << what;
  EXPECT_EQ(kind->description, "z_image transformer") << what;
  EXPECT_EQ(kind->pipeline_class, "ZImagePipeline") << what;
  const auto model = load(files_of(std::move(source)), DType::f32);
  ASSERT_TRUE(model) << what;
  const Golden g = golden("zimage-tiny/golden/dit_f32");
  EXPECT_TRUE(close(run(*model, inputs(g, "pad_both"))[0], g.f32("pad_both.out.0"), tolerance)) << what;
}

TEST(Packaging, DiffusersNamesWithoutAConfig) { expect_same_picture(tiny_source(), "diffusers"); }

TEST(Packaging, DiffusersNamesBehindAPrefix) {
  std::vector<Stored> tensors = stored(*tiny_source());
  for (Stored& t : tensors) t.name = "transformer." + t.name;
  expect_same_picture(in_memory(tensors), "transformer.");
}

TEST(Packaging, OriginalNamesWithFusedQkv) {
  for (const char* prefix : {"", "model.diffusion_model.", "diffusion_model."})
    expect_same_picture(in_memory(original_names(prefix)), prefix);
}

// GGUF converters drop the axis of one in front: [dim] instead of [1, dim].
TEST(Packaging, PadTokensAsVectors) {
  std::vector<Stored> tensors = original_names("");
  int changed = 0;
  for (Stored& t : tensors)
    if (t.name.ends_with("_pad_token")) t.shape = {t.shape[1]}, ++changed;
  EXPECT_EQ(changed, 2);
  expect_same_picture(in_memory(tensors), "vectors");
}

TEST(Packaging, PlainFp8) {
  std::vector<Stored> tensors = original_names("model.diffusion_model."), widened = tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Stored& t = tensors[i];
    if (t.shape.size() != 2 || t.name.ends_with("pad_token")) continue;
    std::vector<std::byte> bytes, wide;
    for (size_t k = 0; k < t.bytes.size(); k += 2) {
      uint16_t bits = 0;
      std::memcpy(&bits, t.bytes.data() + k, 2);
      const uint8_t f8 = nearest_f8_e4m3()[bits];
      bytes.push_back(static_cast<std::byte>(f8));
      const uint16_t back = f32_to_bf16(f8_e4m3_to_f32(f8));  // exact
      wide.push_back(static_cast<std::byte>(back & 0xff));
      wide.push_back(static_cast<std::byte>(back >> 8));
    }
    t.dtype = DType::f8_e4m3;
    t.bytes = bytes;
    widened[i].bytes = wide;
  }
  const Golden g = golden("zimage-tiny/golden/dit_f32");
  const auto fp8 = load(files_of(in_memory(tensors)), std::nullopt), bf16 = load(files_of(in_memory(widened)), {});
  ASSERT_TRUE(fp8 && bf16);
  const Tensor got = run(*fp8, inputs(g, "pad_both"))[0];
  EXPECT_EQ(got.data, run(*bf16, inputs(g, "pad_both"))[0].data);
  // Three bits of mantissa: 2^-4/sqrt(3) = 0.036 a weight; measured 0.038 at the output.
  EXPECT_TRUE(close(got, g.f32("pad_both.out.0"), 0.08));
  EXPECT_FALSE(close(got, g.f32("pad_both.out.0"), 0.005));
}

TEST(Packaging, MissingTensorsAreNamed) {
  std::vector<Stored> tensors = original_names("model.diffusion_model.");
  std::erase_if(tensors, [](const Stored& t) { return t.name.ends_with("layers.1.attention.qkv.weight"); });
  const auto r = Transformer::load(cpu(), files_of(in_memory(tensors)), {});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::bad_input);
  EXPECT_NE(r.error().message.find("layers.1.attention.qkv.weight"), std::string::npos) << r.error().message;
}

// Real feed-forward products reach 344064, beyond f16; f16 weights must not push them through f16.
TEST(Range, F16WeightsKeepFeedForwardProductsBeyondF16) {
  std::vector<Stored> tensors = original_names("");
  for (Stored& t : tensors) {
    if (!t.name.ends_with("feed_forward.w1.weight") && !t.name.ends_with("feed_forward.w3.weight")) continue;
    for (size_t k = 0; k < t.bytes.size(); k += 2) {  // 256 times larger each: products of ten thousand times
      uint16_t bits = 0;
      std::memcpy(&bits, t.bytes.data() + k, 2);
      bits = f32_to_bf16(256.0f * bf16_to_f32(bits));
      std::memcpy(t.bytes.data() + k, &bits, 2);
    }
  }
  const auto source = in_memory(tensors);
  const Golden g = golden("zimage-tiny/golden/dit_f32");
  const auto exact = load(files_of(source), DType::f32);
  ASSERT_TRUE(exact);
  float largest = 0;
  const Tensor expected = run(*exact, inputs(g, "pad_both"))[0];
  // The product before w2 is no tap; its norm is: a row of w2 has norm 1, so the output is of the product's size.
  run(*exact, inputs(g, "pad_both"), [&](const std::string& name, const Tensor& t) {
    if (name == "layers.1.feed_forward")
      for (float v : t.data) largest = std::max(largest, std::fabs(v));
  });
  EXPECT_GT(largest, 65504.0f);
  for (const CpuKernels kernels : {CpuKernels::danqing, CpuKernels::ggml}) {  // ggml's narrow the other factor to f16
    const auto half = load(files_of(source), DType::f16, kernels);
    ASSERT_TRUE(half);
    // f16 keeps 11 bits against bf16's 8, whose error here is 8e-3 (fixture): an eighth of it, doubled.
    EXPECT_TRUE(close(run(*half, inputs(g, "pad_both"))[0], expected, 2e-3)) << static_cast<int>(kernels);
  }
}

}  // namespace
}  // namespace danqing::z_image
