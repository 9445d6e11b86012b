// Configs that no golden covers (patches, no q/k norm, no text projection, odd head counts), against the formulas
// written out plainly in f64.
#include <cmath>
#include <map>

#include "models/ernie_image/transformer.h"
#include "testing/testing.h"

namespace danqing::ernie_image {
namespace {

using testing::close;
using Rows = std::vector<double>;

/// Numbers of a fixed sequence, spread about zero.
class Numbers {
 public:
  float next(float scale) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return scale * 3.4f * (static_cast<float>(state_ >> 40) / 16777216.0f - 0.5f);
  }
  Tensor tensor(Shape shape) {
    Tensor t(std::move(shape));
    for (float& v : t.data) v = next(1.0f);
    return t;
  }

 private:
  uint64_t state_ = 42;
};

using Values = std::map<std::string, std::vector<float>>;

Values random_weights(const Config& c, Numbers& n) {
  Values values;
  for (const TensorSpec& s : tensor_table(c)) {
    std::vector<float>& v = values[s.name];
    v.resize(static_cast<size_t>(element_count(s.shape)));
    const bool norm = s.name.find("norm_") != std::string::npos || s.name.find("_ln.") != std::string::npos;
    const float scale =
        s.shape.size() > 1 ? std::sqrt(static_cast<float>(s.shape[0]) / static_cast<float>(v.size())) : 0.2f;
    for (float& x : v) x = (norm ? 1.0f : 0.0f) + n.next(scale);
  }
  return values;
}

std::shared_ptr<const TensorSource> as_source(const Config& c, const Values& values) {
  std::vector<TensorInfo> tensors;
  std::vector<std::byte> storage;
  for (const TensorSpec& s : tensor_table(c)) {
    const auto bytes = std::as_bytes(std::span(values.at(s.name)));
    tensors.push_back({s.name, DType::f32, s.shape, 0, storage.size(), bytes.size()});
    storage.insert(storage.end(), bytes.begin(), bytes.end());
  }
  return TensorSource::from_memory(std::move(tensors), std::move(storage));
}

struct Reference {
  const Config& c;
  const Values& w;

  Rows linear(const Rows& x, const std::string& name, int64_t in, int64_t out) const {
    const std::vector<float>& m = w.at(name + ".weight");
    const auto bias = w.find(name + ".bias");
    Rows y;
    for (size_t r = 0; r < x.size(); r += static_cast<size_t>(in))
      for (int64_t o = 0; o < out; ++o) {
        double sum = bias == w.end() ? 0 : bias->second[static_cast<size_t>(o)];
        for (int64_t i = 0; i < in; ++i) sum += x[r + static_cast<size_t>(i)] * m[static_cast<size_t>(o * in + i)];
        y.push_back(sum);
      }
    return y;
  }
  static Rows silu(Rows x) {
    for (double& v : x) v /= 1 + std::exp(-v);
    return x;
  }
  /// Over rows of `n`; no weight name: mean-free layer norm.
  Rows norm(Rows x, const std::string& weight, size_t n) const {
    for (size_t r = 0; r < x.size(); r += n) {
      double mean = 0, square = 0;
      for (size_t i = 0; weight.empty() && i < n; ++i) mean += x[r + i] / static_cast<double>(n);
      for (size_t i = 0; i < n; ++i) square += (x[r + i] - mean) * (x[r + i] - mean) / static_cast<double>(n);
      for (size_t i = 0; i < n; ++i)
        x[r + i] = (x[r + i] - mean) / std::sqrt(square + c.eps) * (weight.empty() ? 1 : w.at(weight)[i]);
    }
    return x;
  }
  Rows modulate(Rows x, const double* scale, const double* shift) const {
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t k = i % static_cast<size_t>(c.hidden_size);
      x[i] = x[i] * (1 + scale[k]) + shift[k];
    }
    return x;
  }

  /// Angle of element `e` of a head at a position.
  double angle(const int64_t (&position)[3], int64_t e) const {
    int64_t pair = e / 2, axis = 0;
    while (pair >= c.rope_axes_dim[static_cast<size_t>(axis)] / 2)
      pair -= c.rope_axes_dim[static_cast<size_t>(axis++)] / 2;
    const auto d = static_cast<double>(c.rope_axes_dim[static_cast<size_t>(axis)]);
    return static_cast<double>(position[axis]) * std::pow(c.rope_theta, -2.0 * static_cast<double>(pair) / d);
  }
  Rows rotate(const Rows& x, int64_t w_patches, int64_t image, int64_t text) const {
    const int64_t d = c.head_dim(), half = d / 2;
    Rows y(x.size());
    for (int64_t t = 0; t < image + text; ++t) {
      const int64_t j = t - image;
      const int64_t position[3] = {j < 0 ? text : j, j < 0 ? t / w_patches : 0, j < 0 ? t % w_patches : 0};
      for (int64_t head = 0; head < c.num_attention_heads; ++head) {
        const size_t at = static_cast<size_t>(t * c.hidden_size + head * d);
        for (int64_t e = 0; e < d; ++e) {
          const double a = angle(position, e);
          const double other =
              e < half ? -x[at + static_cast<size_t>(e + half)] : x[at + static_cast<size_t>(e - half)];
          y[at + static_cast<size_t>(e)] = x[at + static_cast<size_t>(e)] * std::cos(a) + other * std::sin(a);
        }
      }
    }
    return y;
  }
  Rows attention(const Rows& q, const Rows& k, const Rows& v, int64_t tokens) const {
    const int64_t d = c.head_dim(), width = c.hidden_size;
    Rows y(q.size(), 0.0);
    for (int64_t head = 0; head < c.num_attention_heads; ++head)
      for (int64_t a = 0; a < tokens; ++a) {
        Rows p;
        double sum = 0;
        for (int64_t b = 0; b < tokens; ++b) {
          double s = 0;
          for (int64_t e = head * d; e < (head + 1) * d; ++e)
            s += q[static_cast<size_t>(a * width + e)] * k[static_cast<size_t>(b * width + e)];
          p.push_back(std::exp(s / std::sqrt(static_cast<double>(d))));
          sum += p.back();
        }
        for (int64_t b = 0; b < tokens; ++b)
          for (int64_t e = head * d; e < (head + 1) * d; ++e)
            y[static_cast<size_t>(a * width + e)] +=
                p[static_cast<size_t>(b)] / sum * v[static_cast<size_t>(b * width + e)];
      }
    return y;
  }

  Tensor forward(const Tensor& latents, const Tensor& text, float timestep) const {
    const int64_t p = c.patch_size, hp = latents.size(2) / p, wp = latents.size(3) / p, h = c.hidden_size;
    const auto n = static_cast<size_t>(h);
    const auto pixel = [&](int64_t ch, int64_t y, int64_t x) {
      return static_cast<size_t>((ch * latents.size(2) + y) * latents.size(3) + x);
    };
    Rows patches;
    for (int64_t t = 0; t < hp * wp; ++t)
      for (int64_t ch = 0; ch < c.in_channels; ++ch)
        for (int64_t i = 0; i < p * p; ++i)
          patches.push_back(latents.data[pixel(ch, t / wp * p + i / p, t % wp * p + i % p)]);
    Rows x = linear(patches, "x_embedder.proj", c.in_channels * p * p, h);
    Rows words(text.data.begin(), text.data.end());
    if (c.has_text_proj()) words = linear(words, "text_proj", c.text_in_dim, h);
    x.insert(x.end(), words.begin(), words.end());
    const int64_t tokens = hp * wp + text.size(0);

    Rows time(n);
    for (size_t i = 0; i < n / 2; ++i) {
      const double a = timestep * std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(n / 2));
      time[i] = std::sin(a), time[n / 2 + i] = std::cos(a);
    }
    const Rows t = linear(silu(linear(time, "time_embedding.linear_1", h, h)), "time_embedding.linear_2", h, h);
    const Rows six = linear(silu(t), "adaLN_modulation.1", h, 6 * h), two = linear(t, "final_norm.linear", h, 2 * h);
    const auto add_gated = [&](const Rows& y, const double* gate) {
      for (size_t i = 0; i < x.size(); ++i) x[i] += gate[i % n] * y[i];
    };
    for (int64_t l = 0; l < c.num_layers; ++l) {
      const std::string layer = "layers." + std::to_string(l) + ".", a = layer + "self_attention.", m = layer + "mlp.";
      Rows y = modulate(norm(x, layer + "adaLN_sa_ln.weight", n), &six[n], &six[0]);
      Rows q = linear(y, a + "to_q", h, h), k = linear(y, a + "to_k", h, h);
      if (c.qk_layernorm) {
        q = norm(q, a + "norm_q.weight", static_cast<size_t>(c.head_dim()));
        k = norm(k, a + "norm_k.weight", static_cast<size_t>(c.head_dim()));
      }
      q = rotate(q, wp, hp * wp, text.size(0)), k = rotate(k, wp, hp * wp, text.size(0));
      add_gated(linear(attention(q, k, linear(y, a + "to_v", h, h), tokens), a + "to_out.0", h, h), &six[2 * n]);
      y = modulate(norm(x, layer + "adaLN_mlp_ln.weight", n), &six[4 * n], &six[3 * n]);
      Rows gate = linear(y, m + "gate_proj", h, c.ffn_hidden_size);
      const Rows up = linear(y, m + "up_proj", h, c.ffn_hidden_size);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] *= 0.5 * (1 + std::erf(gate[i] / std::sqrt(2.0))) * up[i];
      add_gated(linear(gate, m + "linear_fc2", c.ffn_hidden_size, h), &six[5 * n]);
    }
    const Rows out = linear(modulate(norm(x, "", n), &two[0], &two[n]), "final_linear", h, p * p * c.out_channels);
    Tensor picture(Shape{1, c.out_channels, hp * p, wp * p});
    for (int64_t tk = 0; tk < hp * wp; ++tk)
      for (int64_t i = 0; i < p * p; ++i)
        for (int64_t ch = 0; ch < c.out_channels; ++ch)
          picture.data[pixel(ch, tk / wp * p + i / p, tk % wp * p + i % p)] =
              static_cast<float>(out[static_cast<size_t>((tk * p * p + i) * c.out_channels + ch)]);
    return picture;
  }
};

Config config(int64_t heads, std::vector<int64_t> axes, int64_t layers, int64_t ffn, int64_t in, int64_t out) {
  Config c;
  for (int64_t d : axes) c.hidden_size += d * heads;
  c.num_attention_heads = heads, c.rope_axes_dim = std::move(axes);
  c.num_layers = layers, c.ffn_hidden_size = ffn, c.in_channels = in, c.out_channels = out;
  c.text_in_dim = 12;
  return c;
}

TEST(Variants, EqualThePlainFormulas) {
  std::vector<Config> variants = {config(3, {4, 6, 6}, 1, 40, 5, 7), config(2, {4, 8, 8}, 3, 33, 6, 6),
                                  config(1, {2, 2, 6}, 2, 16, 1, 2), config(2, {32, 48, 48}, 1, 64, 8, 8)};
  variants[0].patch_size = 2;
  variants[1].qk_layernorm = false;
  variants[1].text_in_dim = variants[1].hidden_size;
  variants[2].eps = 1e-3f, variants[2].rope_theta = 10000;
  variants[3].patch_size = 3, variants[3].qk_layernorm = false;
  DQ_ASSERT_OK(auto device, Device::open("cpu"));
  for (const Config& c : variants) {
    Numbers n;
    const Values values = random_weights(c, n);
    ComponentFiles files;
    files.source = as_source(c, values);
    files.config = Json{{"hidden_size", c.hidden_size},
                        {"num_attention_heads", c.num_attention_heads},
                        {"num_layers", c.num_layers},
                        {"ffn_hidden_size", c.ffn_hidden_size},
                        {"in_channels", c.in_channels},
                        {"out_channels", c.out_channels},
                        {"patch_size", c.patch_size},
                        {"text_in_dim", c.text_in_dim},
                        {"rope_axes_dim", c.rope_axes_dim},
                        {"rope_theta", c.rope_theta},
                        {"eps", c.eps},
                        {"qk_layernorm", c.qk_layernorm}};
    DQ_ASSERT_OK(auto model, Transformer::load(device, files, WeightPolicy{DType::f32}));
    // 7 x 11 patches: enough queries for the device's kernel for long sequences. Two items, two lengths.
    const Tensor latents = n.tensor({2, c.in_channels, 7 * c.patch_size, 11 * c.patch_size});
    const std::vector<Tensor> text = {n.tensor({3, c.text_in_dim}), n.tensor({5, c.text_in_dim})};
    const std::vector<float> timesteps = {3.5f, 0.25f};
    DQ_ASSERT_OK(Tensor out, model->forward(latents, text, timesteps));
    const Reference reference{c, values};
    for (size_t b = 0; b < 2; ++b) {
      const auto i = static_cast<int64_t>(b);
      // f32 against f64 over at most three layers: as the goldens, whose spread is 3.4e-7.
      EXPECT_TRUE(close(slice(out, i, 1), reference.forward(slice(latents, i, 1), text[b], timesteps[b]), 5e-6))
          << "hidden " << c.hidden_size << ", item " << b;
    }
  }
}

}  // namespace
}  // namespace danqing::ernie_image
