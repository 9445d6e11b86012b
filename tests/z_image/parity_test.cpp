// The transformer against the goldens of diffusers.
#include "z_image/model_files.h"

namespace danqing::z_image {
namespace {

TEST(Parity, EveryCaseInF32) {
  const Golden g = golden("zimage-tiny/golden/dit_f32");
  const auto model = load_tiny(DType::f32);
  ASSERT_TRUE(model);
  for (const std::string& name : kCases) {
    const std::vector<Tensor> out = run(*model, inputs(g, name));
    for (size_t i = 0; i < out.size(); ++i)
      EXPECT_TRUE(close(out[i], g.f32(fmt::format("{}.out.{}", name, i)), kF32)) << name << " item " << i;
  }
}

TEST(Parity, EveryTapOfPadBoth) {
  const Golden g = golden("zimage-tiny/golden/dit_f32");
  const auto model = load_tiny(DType::f32);
  ASSERT_TRUE(model);
  std::map<std::string, Tensor> taps;
  run(*model, inputs(g, "pad_both"), [&](const std::string& n, const Tensor& t) { taps[n] = t; });
  size_t compared = 0;
  const std::string head = "pad_both.tap.";
  for (const TensorInfo& t : g.source->tensors()) {
    if (!t.name.starts_with(head)) continue;
    const std::string name = t.name.substr(head.size());
    ASSERT_TRUE(taps.count(name)) << name;
    // Tables are rounded once from f64: equal but for the last place of the host's cosine.
    const double tolerance = name.ends_with("pos_ids") ? 0 : name.starts_with("rope.") ? 1e-7 : kF32;
    EXPECT_TRUE(close(taps[name], g.f32(t.name), tolerance)) << name;
    ++compared;
  }
  EXPECT_EQ(compared, taps.size());
  EXPECT_EQ(compared, 4u + 6u + 4 * 3);
}

TEST(Parity, GraphOfTheLastShapeIsReusedAndReplaced) {
  const Golden g = golden("zimage-tiny/golden/dit_f32");
  const auto model = load_tiny(DType::f32);
  ASSERT_TRUE(model);
  const Inputs batch = inputs(g, "batch2_other_pad");
  const std::vector<Tensor> first = run(*model, batch);
  EXPECT_EQ(run(*model, batch)[1].data, first[1].data);
  run(*model, inputs(g, "wide"));
  EXPECT_EQ(run(*model, batch)[1].data, first[1].data);
  // The same shape with other caption lengths: tables and padding must follow.
  Inputs swapped = batch;
  std::swap(swapped.captions[0], swapped.captions[1]);
  const std::vector<Tensor> kept = run(*model, swapped);
  const auto fresh = load_tiny(DType::f32);
  ASSERT_TRUE(fresh);
  EXPECT_EQ(run(*fresh, swapped)[0].data, kept[0].data);
  EXPECT_NE(kept[0].data, first[0].data);
}

TEST(Parity, BatchedEqualsSingle) {
  const Golden g = golden("zimage-tiny/golden/dit_f32");
  const auto model = load_tiny(DType::f32);
  ASSERT_TRUE(model);
  for (const char* name : {"batch2_same_pad", "batch2_other_pad", "batch2_other_size"}) {
    const Inputs in = inputs(g, name);
    const std::vector<Tensor> batch = run(*model, in);
    for (size_t i = 0; i < batch.size(); ++i)
      EXPECT_TRUE(close(run(*model, {{in.latents[i]}, {in.captions[i]}, {in.times[i]}})[0], batch[i], kF32)) << name;
  }
}

TEST(Parity, EqualPaddedLengthsNeedNoMask) {
  const auto model = load_tiny(DType::f32);
  ASSERT_TRUE(model);
  const int64_t same[] = {1, 32}, ragged[] = {1, 33}, longer[] = {33, 33};
  DQ_ASSERT_OK(const size_t without, model->measure(64, 64, same));
  DQ_ASSERT_OK(const size_t with, model->measure(64, 64, ragged));
  DQ_ASSERT_OK(const size_t without_longer, model->measure(64, 64, longer));
  EXPECT_LT(without, without_longer);
  EXPECT_LT(without_longer, with);
}

// bf16 weights as stored, whatever the device computes with. The fixture page's rule: at most 1.5 times torch's own
// bf16 error against f32.
TEST(Parity, Bf16Rule) {
  const Golden g = golden("zimage-tiny/golden/dit_f32");
  const auto model = load_tiny(DType::bf16);
  ASSERT_TRUE(model);
  for (const std::string& name : kCases) {
    const double measured = g.json["measured"][name]["bf16_vs_f32"]["rel_l2"].get<double>();
    const std::vector<Tensor> out = run(*model, inputs(g, name));
    for (size_t i = 0; i < out.size(); ++i) {
      const std::string key = fmt::format("{}.out.{}", name, i);
      EXPECT_TRUE(close(out[i], g.f32(key), 1.5 * measured)) << key;
    }
  }
}

}  // namespace
}  // namespace danqing::z_image
