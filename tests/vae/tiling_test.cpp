// Decoding and encoding in tiles: the same picture at any tile and any memory for what is kept, exact memory, errors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/vae/schedule.h"
#include "models/vae/statistics.h"
#include "random_vae.h"
#include "testing/testing.h"

namespace danqing::vae {
namespace {

using danqing::testing::close;
using danqing::testing::golden;
using testing::Numbers;

// What whole decodes differ by when f32 sums are taken in another order (parity_test.cpp: measured 1.4e-6, held to
// 1e-5) holds for tiles too: their convolutions pair pixels otherwise and their statistics are joined in f64. Measured
// here, the largest of all cases: 7.2e-7 relative L2 with our kernels, 6e-7 with ggml's.
constexpr double kRounding = 1e-5;

constexpr uint64_t kAll = UINT64_MAX;  // memory that holds every picture worth keeping

struct Case {
  const char* name;
  Config config;
};

std::vector<Case> configs() {
  Config flux2;  // 22 norms, attention; widths that fill vectors and widths that don't
  flux2.latent_channels = 8, flux2.layers_per_block = 1, flux2.norm_num_groups = 4;
  flux2.block_out_channels = {16, 20, 32, 32};
  flux2.has_batch_norm = true, flux2.patch_size = {2, 2};
  Config kl;
  kl.latent_channels = 16, kl.layers_per_block = 2, kl.norm_num_groups = 2, kl.block_out_channels = {8, 16, 24};
  kl.use_quant_conv = kl.use_post_quant_conv = false, kl.scaling_factor = 0.36, kl.shift_factor = 0.1;
  Config plain = kl;
  plain.mid_block_add_attention = false, plain.layers_per_block = 1, plain.decoder_block_out_channels = {16, 8, 12};
  Config flat = kl;
  flat.block_out_channels = {16};
  return {{"flux2", flux2}, {"kl", kl}, {"plain", plain}, {"flat", flat}};
}

Result<std::unique_ptr<Vae>> load(const std::shared_ptr<Device>& device, const Config& c, uint64_t seed) {
  Numbers n(seed);
  return Vae::load(device, testing::random_files(c, n), Part::both, WeightPolicy{DType::f32});
}

Result<std::shared_ptr<Device>> cpu(CpuKernels kernels) {
  DeviceOptions o;
  o.kernels = kernels, o.threads = 1;
  return Device::open("cpu", o);
}

bool finite(const Tensor& t) {
  return std::all_of(t.data.begin(), t.data.end(), [](float v) { return std::isfinite(v); });
}

double largest = 0;
void note(const Tensor& got, const Tensor& expected) {
  largest = std::max(largest, danqing::testing::difference(got, expected).rel_l2);
}

class Kernels : public ::testing::TestWithParam<CpuKernels> {};
INSTANTIATE_TEST_SUITE_P(Tiling, Kernels, ::testing::Values(CpuKernels::danqing, CpuKernels::ggml),
                         [](const auto& i) { return i.param == CpuKernels::ggml ? "ggml" : "danqing"; });

TEST_P(Kernels, EveryTileGivesTheWholePicture) {
  largest = 0;
  DQ_ASSERT_OK(auto device, cpu(GetParam()));
  uint64_t seed = 1;
  for (const Case& c : configs()) {
    DQ_ASSERT_OK(auto vae, load(device, c.config, ++seed));
    Numbers n(seed);
    for (const auto& [h, w] : {std::pair{5, 9}, std::pair{11, 3}}) {
      const Tensor z = n.tensor({h > w ? 2 : 1, c.config.latent_channels, h, w});
      const Tensor x = n.tensor({1, c.config.in_channels, h * c.config.scale(), w * c.config.scale()});
      DQ_ASSERT_OK(const Tensor picture, vae->decode(z));
      DQ_ASSERT_OK(const Vae::Posterior p, vae->encode(x));
      for (int64_t tile : {1, 2, 4, 7}) {
        for (uint64_t memory : {uint64_t{0}, uint64_t{300} << 10, kAll}) {
          if (tile == 1 && memory != kAll) continue;  // slow: a graph for every few latents
          const Tiling t{tile, memory};
          const std::string what = fmt::format("{} {}x{} tile {} memory {}", c.name, h, w, tile, memory);
          DQ_ASSERT_OK(const Tensor y, vae->decode(z, t));
          EXPECT_TRUE(close(y, picture, kRounding)) << what;
          EXPECT_TRUE(finite(y)) << what;
          note(y, picture);
          DQ_ASSERT_OK(const Vae::Posterior q, vae->encode(x, t));
          EXPECT_TRUE(close(q.mean, p.mean, kRounding)) << what;
          EXPECT_TRUE(close(q.logvar, p.logvar, kRounding)) << what;
          note(q.mean, p.mean);
        }
      }
    }
  }
  RecordProperty("largest_rel_l2", fmt::format("{:.2e}", largest));
  std::printf("largest relative difference: %.2e\n", largest);
}

TEST_P(Kernels, MemoryIsExactlyWhatWasMeasured) {
  for (const Case& c : configs()) {
    for (uint64_t memory : {uint64_t{0}, kAll}) {
      for (int64_t tile : {3, 6}) {
        DQ_ASSERT_OK(auto device, cpu(GetParam()));
        DQ_ASSERT_OK(auto vae, load(device, c.config, 5));
        const Tiling t{tile, memory};
        const uint64_t weights = device->allocated();
        EXPECT_EQ(device->peak_allocated(), weights);
        DQ_ASSERT_OK(const size_t decode, vae->measure_decode(1, 8, 13, t));
        EXPECT_EQ(device->peak_allocated(), weights) << "measuring allocates nothing";
        ASSERT_TRUE(vae->decode(Tensor(Shape{1, c.config.latent_channels, 8, 13}), t).ok());
        EXPECT_EQ(device->peak_allocated() - weights, decode) << c.name << " tile " << tile;
        EXPECT_EQ(device->allocated(), weights) << "nothing is kept";

        DQ_ASSERT_OK(auto other, cpu(GetParam()));
        DQ_ASSERT_OK(vae, load(other, c.config, 5));
        DQ_ASSERT_OK(const size_t encode, vae->measure_encode(1, 8, 13, t));
        const int64_t f = c.config.scale();
        ASSERT_TRUE(vae->encode(Tensor(Shape{1, c.config.in_channels, 8 * f, 13 * f}), t).ok());
        EXPECT_EQ(other->peak_allocated() - weights, encode) << c.name << " tile " << tile;
      }
    }
  }
}

TEST_P(Kernels, EveryRefusedAllocationIsAnError) {
  DQ_ASSERT_OK(auto device, cpu(GetParam()));
  DQ_ASSERT_OK(auto vae, load(device, configs()[1].config, 5));
  const Tensor z = Numbers(3).tensor({1, 16, 5, 6});
  const uint64_t weights = device->allocated();
  DQ_ASSERT_OK(const Tensor picture, vae->decode(z, Tiling{3, 0}));
  int refused = 0;
  for (int k = 1;; ++k) {
    device->fail_allocation(k);
    const auto r = vae->decode(z, Tiling{3, 0});
    device->fail_allocation(0);
    EXPECT_EQ(device->allocated(), weights) << k;
    if (r.ok()) {
      EXPECT_EQ(r->data, picture.data);
      break;
    }
    ASSERT_EQ(r.error().code, ErrorCode::does_not_fit) << r.error().message;
    ++refused;
  }
  EXPECT_GT(refused, 20);
}

TEST(Tiling, GoldensInTiles) {
  DQ_ASSERT_OK(auto device, Device::open("cpu"));
  for (const char* model : {"ernie-tiny", "zimage-tiny"}) {
    ComponentFiles files;
    files.path = danqing::testing::data(std::string("fixtures/") + model + "/vae");
    DQ_ASSERT_OK(files.source, TensorSource::open(files.path));
    DQ_ASSERT_OK(files.config, read_json(files.path / "config.json"));
    DQ_ASSERT_OK(auto vae, Vae::load(device, files, Part::both, WeightPolicy{DType::f32}));
    const auto g = golden(std::string(model) + "/golden/vae");
    int cases = 0;
    for (const TensorInfo& info : g.source->tensors()) {
      const size_t end = info.name.rfind(".in");
      if (end == std::string::npos || end + 3 != info.name.size()) continue;
      const std::string name = info.name.substr(0, end);
      for (int64_t tile : {2, 5}) {
        if (name.rfind("decode.", 0) == 0) {
          DQ_ASSERT_OK(const Tensor y, vae->decode(g.f32(name + ".in"), Tiling{tile, 0}));
          EXPECT_TRUE(close(y, g.f32(name + ".out"), 1e-5)) << model << " " << name << " tile " << tile;
        } else if (name.rfind("encode.", 0) == 0) {
          DQ_ASSERT_OK(const Vae::Posterior p, vae->encode(g.f32(name + ".in"), Tiling{tile, kAll}));
          EXPECT_TRUE(close(p.mean, g.f32(name + ".mean"), 1e-5)) << model << " " << name << " tile " << tile;
        } else {
          continue;
        }
        ++cases;
      }
    }
    EXPECT_GE(cases, 8) << model;
  }
}

// A picture of large values far from zero: the variance is what is left of much larger numbers.
TEST(Tiling, StatisticsFarFromZero) {
  DQ_ASSERT_OK(auto device, Device::open("cpu"));
  const Config c = configs()[1].config;
  DQ_ASSERT_OK(auto vae, load(device, c, 9));
  Tensor z = Numbers(4).tensor({1, c.latent_channels, 9, 8});
  for (float& v : z.data) v = 300 + v;
  DQ_ASSERT_OK(const Tensor picture, vae->decode(z));
  DQ_ASSERT_OK(const Tensor tiles, vae->decode(z, Tiling{2, 0}));
  // The first norm's input is good to 300 times 2^-24 only, in both.
  EXPECT_TRUE(close(tiles, picture, 1e-4));
  note(tiles, picture);

  Statistics s;
  const std::vector<float> a{1e4f, 8.0f}, b{1e4f + 2, 4.0f};  // [2, 1]: 4 and 2 pixels
  s.add(a, 4), s.add(b, 2);
  const double variance = (8 + 4 + 4.0 * 4 * 2 / 6) / 6;
  const std::vector<float> out = s.finish(1, 0);
  EXPECT_FLOAT_EQ(out[0], 1e4f + 2.0f / 3);
  EXPECT_FLOAT_EQ(out[1], static_cast<float>(1 / std::sqrt(variance)));
}

TEST(Tiling, CancelStopsBetweenTiles) {
  DQ_ASSERT_OK(auto device, Device::open("cpu"));
  const Config c = configs()[1].config;
  DQ_ASSERT_OK(auto vae, load(device, c, 9));
  const Tensor z = Numbers(4).tensor({1, c.latent_channels, 9, 8});
  double done = 0, before = 0;
  const auto r = vae->decode(
      z, Tiling{2, 0}, {}, [&] { return done > 0.3; }, [&](double d) { done = d; });
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::cancelled);
  EXPECT_LT(done, 0.5);
  int calls = 0;
  DQ_ASSERT_OK(const Tensor y, vae->decode(z, Tiling{2, 0}, {}, {}, [&](double d) {
    EXPECT_GE(d, before);
    before = d;
    ++calls;
  }));
  EXPECT_NEAR(before, 1.0, 1e-6);
  EXPECT_GT(calls, 100);
}

TEST(Tiling, WrongTilesAreUsageErrors) {
  DQ_ASSERT_OK(auto device, Device::open("cpu"));
  DQ_ASSERT_OK(auto vae, load(device, configs()[3].config, 9));
  const auto r = vae->decode(Tensor(Shape{1, 16, 2, 2}), Tiling{-1});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::usage);
  EXPECT_FALSE(vae->measure_decode(1, 2, 2, Tiling{-1}).ok());
  EXPECT_FALSE(vae->measure_encode(1, 0, 2, Tiling{1}).ok());
  EXPECT_FALSE(vae->host_bytes_decode(1, 0, Tiling{1}).ok());
}

TEST(Tiling, TapsAreWholePictures) {
  DQ_ASSERT_OK(auto device, Device::open("cpu"));
  DQ_ASSERT_OK(auto vae, load(device, configs()[1].config, 9));
  const Tensor z = Numbers(4).tensor({1, 16, 4, 4});
  int taps = 0;
  DQ_ASSERT_OK(const Tensor y, vae->decode(z, Tiling{2}, [&](const std::string&, const Tensor&) { ++taps; }));
  DQ_ASSERT_OK(const Tensor whole, vae->decode(z));
  EXPECT_EQ(taps, 7);
  EXPECT_EQ(y.data, whole.data);
}

TEST(Schedule, MemoryAgainstRepeatedWork) {
  Config c;
  c.latent_channels = 32, c.layers_per_block = 2, c.block_out_channels = {128, 256, 512, 512};
  c.mid_block_add_attention = false;
  const Chain chain = decoder_chain(c);
  double before = 0;
  for (const uint64_t memory : {uint64_t{0}, uint64_t{64} << 20, uint64_t{512} << 20, uint64_t{1} << 30, kAll}) {
    const Schedule s = make_schedule(chain, 128, 128, 32, memory);
    const double work = 2 * s.work() / Vae::decode_flops(c, 1, 128, 128);
    std::printf("1024x1024, %llu MiB: %.2f times the work, %.0f MiB kept, %zu passes\n",
                static_cast<unsigned long long>(memory >> 20), work, static_cast<double>(s.kept_bytes) / (1 << 20),
                s.passes.size());
    if (before != 0) {
      EXPECT_LE(work, before);
      EXPECT_LE(s.kept_bytes, memory);
    }
    before = work;
  }
  EXPECT_LT(before, 1.2);  // what halos of a pixel or two cost with tiles of 32
}

TEST(Schedule, CutsEvenly) {
  for (int64_t n : {1, 2, 7, 64, 65})
    for (int64_t tile : {1, 2, 5, 64, 100}) {
      int64_t at = 0, least = n, most = 0;
      for (const Interval& i : cut_axis(n, tile)) {
        EXPECT_EQ(i.begin, at);
        least = std::min(least, i.length()), most = std::max(most, i.length());
        at = i.end;
      }
      EXPECT_EQ(at, n);
      EXPECT_LE(most, tile);
      EXPECT_LE(most - least, 1);
    }
}

}  // namespace
}  // namespace danqing::vae
