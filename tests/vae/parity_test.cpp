// Decoder and encoder against the goldens of diffusers.
#include <cmath>
#include <map>

#include "models/vae/vae.h"
#include "testing/testing.h"

namespace danqing::vae {
namespace {

using testing::close;
using testing::data;
using testing::golden;

// Ten times the spread of correct f32 evaluations that the fixture measured (1.4e-6); a group-norm eps of 1e-5 costs
// 3e-5.
constexpr double kF32 = 1e-5;

ComponentFiles files_at(const std::filesystem::path& path) {
  ComponentFiles files;
  files.role = "vae";
  files.path = path;
  auto source = TensorSource::open(path);
  auto json = read_json(path / "config.json");
  EXPECT_TRUE(source.ok() && json.ok());
  if (source.ok()) files.source = *source;
  if (json.ok()) files.config = *json;
  return files;
}

std::unique_ptr<Vae> load(const ComponentFiles& files, Part part) {
  auto device = Device::open("cpu");
  EXPECT_TRUE(device.ok());
  if (!device.ok() || !files.source) return nullptr;
  auto vae = Vae::load(*device, files, part, WeightPolicy{DType::f32});
  EXPECT_TRUE(vae.ok()) << (vae.ok() ? "" : vae.error().message);
  return vae.ok() ? std::move(*vae) : nullptr;
}

std::unique_ptr<Vae> tiny(Part part) { return load(files_at(data("fixtures/ernie-tiny/vae")), part); }

TEST(Parity, DecodeWithEveryTap) {
  const auto g = golden("ernie-tiny/golden/vae");
  const auto vae = tiny(Part::decoder);
  ASSERT_TRUE(vae);
  std::map<std::string, Tensor> taps;
  DQ_ASSERT_OK(Tensor out,
               vae->decode(g.f32("decode.2x4.in"), [&](const std::string& n, const Tensor& t) { taps[n] = t; }));
  EXPECT_TRUE(close(out, g.f32("decode.2x4.out"), kF32));
  size_t compared = 0;
  const std::string head = "decode.2x4.tap.";
  for (const TensorInfo& t : g.source->tensors()) {
    if (t.name.rfind(head, 0) != 0) continue;
    const std::string name = t.name.substr(head.size());
    ASSERT_TRUE(taps.count(name)) << name;
    EXPECT_TRUE(close(taps[name], g.f32(t.name), kF32)) << name;
    ++compared;
  }
  EXPECT_EQ(compared, taps.size());
  EXPECT_EQ(compared, 9u);
}

TEST(Parity, DecodeWithoutTaps) {
  const auto g = golden("ernie-tiny/golden/vae");
  const auto vae = tiny(Part::decoder);
  ASSERT_TRUE(vae);
  for (const char* name : {"decode.8x8", "decode.2x4", "decode.8x8"}) {
    DQ_ASSERT_OK(Tensor out, vae->decode(g.f32(std::string(name) + ".in")));
    EXPECT_TRUE(close(out, g.f32(std::string(name) + ".out"), kF32)) << name;
  }
}

TEST(Parity, EncodeAndStatistics) {
  const auto g = golden("ernie-tiny/golden/vae");
  const auto vae = tiny(Part::encoder);
  ASSERT_TRUE(vae);
  for (const char* name : {"encode.48x32", "encode.64x96"}) {
    DQ_ASSERT_OK(Vae::Posterior p, vae->encode(g.f32(std::string(name) + ".in")));
    EXPECT_TRUE(close(p.mean, g.f32(std::string(name) + ".mean"), kF32)) << name;
    EXPECT_TRUE(close(p.logvar, g.f32(std::string(name) + ".logvar"), kF32)) << name;
    const Tensor normalised = normalise(patchify(p.mean, vae->config().patch_size), vae->bn_mean(), vae->bn_std());
    EXPECT_TRUE(close(normalised, g.f32(std::string(name) + ".normalised"), kF32)) << name;
  }
  // The statistics are stored in bf16 and widened; the root is taken in f32.
  EXPECT_EQ(vae->bn_mean(), g.f32("denorm.bn_mean").data);
  EXPECT_TRUE(close(Tensor(Shape{128}, vae->bn_std()), g.f32("denorm.bn_std"), 1e-6));
}

TEST(Parity, ItemsOfABatchAreIndependent) {
  const auto g = golden("ernie-tiny/golden/vae");
  const auto vae = tiny(Part::both);
  ASSERT_TRUE(vae);
  const Tensor a = g.f32("decode.8x8.in");
  Tensor b = a;
  for (float& v : b.data) v = -v;
  DQ_ASSERT_OK(Tensor both, vae->decode(*concat({a, b})));
  DQ_ASSERT_OK(Tensor second, vae->decode(b));
  EXPECT_TRUE(close(slice(both, 0, 1), g.f32("decode.8x8.out"), kF32));
  EXPECT_EQ(slice(both, 1, 1).data, second.data);
  DQ_ASSERT_OK(size_t one, vae->measure_decode(1, 8, 8));
  DQ_ASSERT_OK(size_t four, vae->measure_decode(4, 8, 8));
  EXPECT_EQ(one, four);

  const Tensor x = g.f32("encode.48x32.in");
  DQ_ASSERT_OK(Vae::Posterior p, vae->encode(*concat({x, x})));
  EXPECT_TRUE(close(slice(p.mean, 1, 1), g.f32("encode.48x32.mean"), kF32));
  EXPECT_TRUE(close(slice(p.logvar, 1, 1), g.f32("encode.48x32.logvar"), kF32));
}

// A decoder does not care about what the encoder would need, and the reverse.
TEST(Parity, PartsRefuseEachOthersWork) {
  const auto decoder = tiny(Part::decoder), encoder = tiny(Part::encoder), both = tiny(Part::both);
  ASSERT_TRUE(decoder && encoder && both);
  const auto no_encoder = decoder->encode(Tensor(Shape{1, 3, 16, 16}));
  ASSERT_FALSE(no_encoder.ok());
  EXPECT_EQ(no_encoder.error().code, ErrorCode::usage);
  EXPECT_FALSE(encoder->decode(Tensor(Shape{1, 32, 2, 2})).ok());
  EXPECT_LT(decoder->weight_bytes(), both->weight_bytes());
}

TEST(Forward, WrongInputsAreUsageErrors) {
  const auto vae = tiny(Part::both);
  ASSERT_TRUE(vae);
  for (const Shape& s : {Shape{32, 2, 2}, Shape{1, 16, 2, 2}, Shape{0, 32, 2, 2}, Shape{1, 32, 0, 2}, Shape{}}) {
    const auto r = vae->decode(Tensor(s));
    ASSERT_FALSE(r.ok()) << to_string(s);
    EXPECT_EQ(r.error().code, ErrorCode::usage) << r.error().message;
  }
  for (const Shape& s :
       {Shape{3, 16, 16}, Shape{1, 1, 16, 16}, Shape{1, 3, 15, 16}, Shape{1, 3, 16, 0}, Shape{0, 3, 16, 16}}) {
    const auto r = vae->encode(Tensor(s));
    ASSERT_FALSE(r.ok()) << to_string(s);
    EXPECT_EQ(r.error().code, ErrorCode::usage) << r.error().message;
  }
  for (int64_t bad : {int64_t{0}, int64_t{-8}, int64_t{1} << 40, INT64_MAX}) {
    EXPECT_FALSE(vae->measure_decode(1, bad, 8).ok()) << bad;
    EXPECT_FALSE(vae->measure_decode(1, 8, bad).ok()) << bad;
  }
}

TEST(Forward, CancelStopsAndTheModelStaysUsable) {
  const auto g = golden("ernie-tiny/golden/vae");
  const auto vae = tiny(Part::decoder);
  ASSERT_TRUE(vae);
  const auto r = vae->decode(g.f32("decode.8x8.in"), {}, [] { return true; });
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::cancelled);
  DQ_ASSERT_OK(Tensor out, vae->decode(g.f32("decode.8x8.in")));
  EXPECT_TRUE(close(out, g.f32("decode.8x8.out"), kF32));
}

}  // namespace
}  // namespace danqing::vae
