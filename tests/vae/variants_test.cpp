// Structures that no golden covers (other depths, a decoder of other widths, no attention, no 1x1 convolutions),
// against the formulas written out plainly in f64.
#include <cmath>
#include <map>

#include "models/vae/vae.h"
#include "random_vae.h"
#include "testing/testing.h"

namespace danqing::vae {
namespace {

using danqing::testing::close;
using testing::Numbers;
using testing::Values;

/// One picture [C, h, w] in f64.
struct Picture {
  int64_t channels, h, w;
  std::vector<double> v;
  Picture(int64_t c, int64_t height, int64_t width)
      : channels(c), h(height), w(width), v(static_cast<size_t>(c * height * width), 0.0) {}
  double& at(int64_t c, int64_t y, int64_t x) { return v[static_cast<size_t>((c * h + y) * w + x)]; }
  double get(int64_t c, int64_t y, int64_t x) const {
    return y < 0 || x < 0 || y >= h || x >= w ? 0 : v[static_cast<size_t>((c * h + y) * w + x)];
  }
  Tensor tensor() const { return Tensor(Shape{1, channels, h, w}, std::vector<float>(v.begin(), v.end())); }
};

struct Reference {
  const Config& c;
  const Values& w;

  Picture conv(const Picture& x, const std::string& name, int64_t kernel, int64_t stride = 1, int64_t pad = -1) const {
    const std::vector<float>&m = w.at(name + ".weight"), &bias = w.at(name + ".bias");
    if (pad < 0) pad = kernel / 2;
    Picture y(static_cast<int64_t>(bias.size()), x.h / stride, x.w / stride);
    for (int64_t o = 0; o < y.channels; ++o)
      for (int64_t r = 0; r < y.h; ++r)
        for (int64_t q = 0; q < y.w; ++q) {
          double sum = bias[static_cast<size_t>(o)];
          for (int64_t i = 0; i < x.channels; ++i)
            for (int64_t a = 0; a < kernel; ++a)
              for (int64_t b = 0; b < kernel; ++b)
                sum += x.get(i, r * stride + a - pad, q * stride + b - pad) *
                       m[static_cast<size_t>(((o * x.channels + i) * kernel + a) * kernel + b)];
          y.at(o, r, q) = sum;
        }
    return y;
  }
  Picture norm(Picture x, const std::string& name) const {
    const size_t group = x.v.size() / static_cast<size_t>(c.norm_num_groups), pixels = static_cast<size_t>(x.h * x.w);
    for (size_t g = 0; g < x.v.size(); g += group) {
      double mean = 0, var = 0;
      for (size_t i = g; i < g + group; ++i) mean += x.v[i] / static_cast<double>(group);
      for (size_t i = g; i < g + group; ++i) var += (x.v[i] - mean) * (x.v[i] - mean) / static_cast<double>(group);
      for (size_t i = g; i < g + group; ++i) {
        x.v[i] = (x.v[i] - mean) / std::sqrt(var + 1e-6) * w.at(name + ".weight")[i / pixels] +
                 w.at(name + ".bias")[i / pixels];
      }
    }
    return x;
  }
  static Picture silu(Picture x) {
    for (double& v : x.v) v /= 1 + std::exp(-v);
    return x;
  }
  static Picture sum(Picture a, const Picture& b) {
    for (size_t i = 0; i < a.v.size(); ++i) a.v[i] += b.v[i];
    return a;
  }
  Picture resnet(const Picture& x, const std::string& name) const {
    const Picture y = conv(silu(norm(x, name + ".norm1")), name + ".conv1", 3);
    const Picture z = conv(silu(norm(y, name + ".norm2")), name + ".conv2", 3);
    return sum(w.count(name + ".conv_shortcut.weight") ? conv(x, name + ".conv_shortcut", 1) : x, z);
  }
  Picture attention(const Picture& x, const std::string& name) const {
    const Picture n = norm(x, name + ".group_norm");
    const Picture q = conv(n, name + ".to_q", 1), k = conv(n, name + ".to_k", 1), v = conv(n, name + ".to_v", 1);
    Picture y(x.channels, x.h, x.w);
    const int64_t pixels = x.h * x.w;
    for (int64_t a = 0; a < pixels; ++a) {
      std::vector<double> p;
      double total = 0;
      for (int64_t b = 0; b < pixels; ++b) {
        double s = 0;
        for (int64_t i = 0; i < x.channels; ++i)
          s += q.v[static_cast<size_t>(i * pixels + a)] * k.v[static_cast<size_t>(i * pixels + b)];
        p.push_back(std::exp(s / std::sqrt(static_cast<double>(x.channels))));
        total += p.back();
      }
      for (int64_t b = 0; b < pixels; ++b)
        for (int64_t i = 0; i < x.channels; ++i)
          y.v[static_cast<size_t>(i * pixels + a)] +=
              p[static_cast<size_t>(b)] / total * v.v[static_cast<size_t>(i * pixels + b)];
    }
    return sum(x, conv(y, name + ".to_out.0", 1));
  }
  Picture middle(Picture x, const std::string& name) const {
    x = resnet(x, name + ".resnets.0");
    if (c.mid_block_add_attention) x = attention(x, name + ".attentions.0");
    return resnet(x, name + ".resnets.1");
  }
  Picture decode(Picture x) const {
    if (c.use_post_quant_conv) x = conv(x, "post_quant_conv", 1);
    x = middle(conv(x, "decoder.conv_in", 3), "decoder.mid_block");
    const size_t blocks = c.decoder_widths().size();
    for (size_t i = 0; i < blocks; ++i) {
      const std::string block = "decoder.up_blocks." + std::to_string(i) + ".";
      for (int64_t j = 0; j <= c.layers_per_block; ++j) x = resnet(x, block + "resnets." + std::to_string(j));
      if (i + 1 == blocks) break;
      Picture wide(x.channels, 2 * x.h, 2 * x.w);
      for (int64_t ch = 0; ch < x.channels; ++ch)
        for (int64_t r = 0; r < wide.h; ++r)
          for (int64_t q = 0; q < wide.w; ++q) wide.at(ch, r, q) = x.get(ch, r / 2, q / 2);
      x = conv(wide, block + "upsamplers.0.conv", 3);
    }
    return conv(silu(norm(x, "decoder.conv_norm_out")), "decoder.conv_out", 3);
  }
  Picture encode(Picture x) const {
    x = conv(x, "encoder.conv_in", 3);
    for (size_t i = 0; i < c.block_out_channels.size(); ++i) {
      const std::string block = "encoder.down_blocks." + std::to_string(i) + ".";
      for (int64_t j = 0; j < c.layers_per_block; ++j) x = resnet(x, block + "resnets." + std::to_string(j));
      if (i + 1 < c.block_out_channels.size()) x = conv(x, block + "downsamplers.0.conv", 3, 2, 0);
    }
    x = conv(silu(norm(middle(x, "encoder.mid_block"), "encoder.conv_norm_out")), "encoder.conv_out", 3);
    return c.use_quant_conv ? conv(x, "quant_conv", 1) : x;
  }
};

Picture random_picture(Numbers& n, int64_t channels, int64_t h, int64_t w) {
  Picture p(channels, h, w);
  for (double& v : p.v) v = n.next(1.0f);
  return p;
}

TEST(Variants, EqualThePlainFormulas) {
  Config base;
  base.latent_channels = 3, base.layers_per_block = 1, base.norm_num_groups = 4, base.block_out_channels = {8, 16};
  std::vector<Config> variants(5, base);
  variants[0].decoder_block_out_channels = {12, 20};
  variants[1].block_out_channels = {8};  // nothing is resampled
  variants[1].mid_block_add_attention = false;
  variants[2].block_out_channels = {4, 8, 8}, variants[2].layers_per_block = 2, variants[2].use_quant_conv = false;
  variants[2].use_post_quant_conv = false;
  variants[3].in_channels = 1, variants[3].out_channels = 4, variants[3].norm_num_groups = 1;
  variants[4].has_batch_norm = true, variants[4].patch_size = {2, 2};
  DQ_ASSERT_OK(auto device, Device::open("cpu"));
  for (const Config& c : variants) {
    Numbers n;
    Values values;
    const ComponentFiles files = testing::random_files(c, n, &values);
    DQ_ASSERT_OK(auto vae, Vae::load(device, files, Part::both, WeightPolicy{DType::f32}));
    EXPECT_EQ(vae->bn_std().size(), c.has_batch_norm ? 12u : 0u);
    const Reference reference{c, values};
    const std::string what = to_string(c.block_out_channels);
    const Picture z = random_picture(n, c.latent_channels, 7, 10);
    DQ_ASSERT_OK(Tensor picture, vae->decode(z.tensor()));
    // f32 against f64, as deep as the goldens' models at most: their spread is 1.4e-6.
    EXPECT_TRUE(close(picture, reference.decode(z).tensor(), 1e-5)) << "decode " << what;

    const Picture x = random_picture(n, c.in_channels, 4 * c.scale(), 6 * c.scale());
    DQ_ASSERT_OK(Vae::Posterior p, vae->encode(x.tensor()));
    const Tensor moments = reference.encode(x).tensor();
    const auto half = moments.data.begin() + moments.count() / 2;
    const Shape shape{1, c.latent_channels, 4, 6};
    EXPECT_TRUE(close(p.mean, Tensor(shape, {moments.data.begin(), half}), 1e-5)) << "encode " << what;
    EXPECT_TRUE(close(p.logvar, Tensor(shape, {half, moments.data.end()}), 1e-5)) << "encode " << what;
  }
}

TEST(Variants, LogVarianceIsClamped) {
  Config c;
  c.latent_channels = 1, c.layers_per_block = 1, c.norm_num_groups = 1, c.block_out_channels = {2};
  std::vector<TensorInfo> tensors;
  std::vector<float> storage;
  for (const TensorSpec& s : tensor_table(c, Part::encoder)) {
    const auto n = static_cast<size_t>(element_count(s.shape));
    tensors.push_back({s.name, DType::f32, s.shape, 0, storage.size() * 4, n * 4});
    storage.insert(storage.end(), n, 0.0f);
    if (s.name == "quant_conv.bias") storage.end()[-2] = 100.0f, storage.end()[-1] = -100.0f;  // mean, log-variance
  }
  const auto bytes = std::as_bytes(std::span(storage));
  ComponentFiles files;
  files.source = TensorSource::from_memory(std::move(tensors), {bytes.begin(), bytes.end()});
  files.config =
      Json{{"block_out_channels", {2}}, {"latent_channels", 1}, {"layers_per_block", 1}, {"norm_num_groups", 1}};
  DQ_ASSERT_OK(auto device, Device::open("cpu"));
  DQ_ASSERT_OK(auto vae, Vae::load(device, files, Part::encoder, WeightPolicy{DType::f32}));
  DQ_ASSERT_OK(Vae::Posterior p, vae->encode(Tensor(Shape{1, 3, 2, 2})));
  EXPECT_EQ(p.mean.data, std::vector<float>(4, 100.0f));
  EXPECT_EQ(p.logvar.data, std::vector<float>(4, -30.0f));
}

}  // namespace
}  // namespace danqing::vae
