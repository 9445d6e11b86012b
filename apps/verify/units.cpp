// Single operations, each as a graph of its own on the device.
#include <cmath>
#include <functional>
#include <limits>

#include "base/try.h"
#include "image/convert.h"
#include "models/ernie_image/positions.h"
#include "nn/nn.h"
#include "verify/stages.h"

namespace danqing::app::verify {
namespace {

using Build = std::function<ggml_tensor*(Graph&, const std::vector<ggml_tensor*>&)>;

/// Runs one operation on the inputs; the result in the given shape.
Result<Tensor> compute(const Suite& suite, const std::vector<Tensor>& inputs, const Shape& out, const Build& build) {
  auto graph = std::make_unique<Graph>(*suite.device, 64);
  std::vector<ggml_tensor*> tensors;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].shape.empty() || inputs[i].shape.size() > 4 || inputs[i].count() == 0)
      return bad_input("[verify] units: expected inputs of 1 to 4 axes, got {}", to_string(inputs[i].shape));
    tensors.push_back(graph->input(fmt::format("in{}", i), DType::f32, inputs[i].shape));
  }
  ggml_tensor* result = build(*graph, tensors);
  if (ggml_nelements(result) != element_count(out))
    return bad_input("[verify] units: expected {} values, got {}", to_string(out), ggml_nelements(result));
  graph->output("out", result, out);
  Runner runner(std::move(graph));
  for (size_t i = 0; i < inputs.size(); ++i) DQ_CHECK(runner.set(fmt::format("in{}", i), inputs[i].data));
  DQ_CHECK(runner.run());
  return runner.read("out");
}

struct Units {
  Suite& suite;
  std::shared_ptr<Golden> g;

  /// One golden that is a graph of other keys.
  void add(const std::string& key, std::vector<std::string> inputs, const Tolerance& t,
           const std::function<Result<Tensor>(const std::vector<Tensor>&, const Shape&)>& run) const {
    if (!g->has(key)) return;
    std::vector<std::string> keys = inputs;
    keys.push_back(key);
    suite.add(g->label(), key, g, keys, [g = g, key, inputs, t, run](Checker& c) -> Result<void> {
      std::vector<Tensor> in;
      for (const std::string& k : inputs) {
        DQ_TRY(Tensor x, g->tensor(k));
        in.push_back(std::move(x));
      }
      DQ_TRY(const Tensor expected, g->tensor(key));
      DQ_TRY(const Tensor got, run(in, expected.shape));
      c.compare(key, *g, key, got, t);
      return {};
    });
  }
  /// `fits`: the operation asserts its shapes, which here come from a file.
  using Fits = bool (*)(const std::vector<Tensor>&);
  void add_op(const std::string& key, const std::vector<std::string>& inputs, const Tolerance& t, Fits fits,
              const Build& build) const {
    add(key, inputs, t, [s = &suite, fits, build](const std::vector<Tensor>& in, const Shape& out) -> Result<Tensor> {
      if (!fits(in)) return bad_input("[verify] units: the inputs' shapes do not belong together");
      return compute(*s, in, out, build);
    });
  }
  Tolerance elementwise() const { return f32_tolerance(page::kUnit, 0, suite.factors.elementwise); }
  Tolerance matmul() const { return f32_tolerance(page::kUnitMatmul, 0, suite.factors.matmul); }
};

bool anything_fits(const std::vector<Tensor>&) { return true; }
bool weight_fits(const std::vector<Tensor>& x) { return !x[0].shape.empty() && x[1].shape == Shape{x[0].shape.back()}; }
bool convolution_fits(const std::vector<Tensor>& x) {
  return x[0].shape.size() == 4 && x[1].shape.size() == 4 && x[0].size(1) == x[1].size(1) && x[0].size(2) >= 3 &&
         x[0].size(3) >= 3 && x[1].size(2) == 3 && x[1].size(3) == 3 && x[2].shape == Shape{x[1].size(0)};
}
/// q [B, T, heads, D] with tables of T rows of D.
bool rope_fits(const Tensor& q, const Tensor& cos, const Tensor& sin) {
  return q.shape.size() == 4 && q.size(3) % 2 == 0 && cos.shape == Shape{1, q.size(1), 1, q.size(3)} &&
         sin.shape == cos.shape;
}
bool attention_fits(const Tensor& q, const Tensor& k, const Tensor& v) {
  return q.shape.size() == 4 && k.shape.size() == 4 && v.shape == k.shape && q.count() > 0 && k.count() > 0 &&
         q.size(0) == k.size(0) && q.size(3) == k.size(3) && q.size(1) % k.size(1) == 0;
}

/// "1e-6" of "layernorm_eps1e-6.f32".
std::optional<float> eps_of(const std::string& op) {
  const size_t at = op.find("_eps");
  if (at == std::string::npos) return {};
  const float eps = std::strtof(op.c_str() + at + 4, nullptr);
  return eps > 0 && eps < 1 ? std::optional(eps) : std::nullopt;
}

void add_norms(const Units& u) {
  for (const std::string& scale : u.g->names("norm.", ".in")) {
    const std::string base = "norm." + scale + ".", in = base + "in";
    for (const std::string& op : u.g->names(base, ".f32")) {
      const auto eps = eps_of(op);
      if (!eps) continue;
      const std::string key = base + op + ".f32";
      if (op.find("_rms_") != std::string::npos) {
        u.add_op(key, {in, "norm.weight"}, u.elementwise(), weight_fits,
                 [eps](Graph& g, const std::vector<ggml_tensor*>& x) { return nn::rms_norm(g, x[0], x[1], *eps); });
      } else if (op.starts_with("layernorm")) {
        u.add_op(key, {in}, u.elementwise(), anything_fits, [eps](Graph& g, const std::vector<ggml_tensor*>& x) {
          return nn::layer_norm(g, x[0], nullptr, nullptr, *eps);
        });
      } else if (op.starts_with("groupnorm")) {
        // The reference views the values as [1, 32, n/32, 1].
        const int groups = std::atoi(op.c_str() + 9);
        u.add(key, {in}, u.elementwise(),
              [s = &u.suite, groups, eps](const std::vector<Tensor>& x, const Shape& out) -> Result<Tensor> {
                if (x[0].count() % 32 || groups < 1 || 32 % groups)
                  return bad_input("[verify] units: group norm expects 32 channels");
                Tensor view = x[0];
                view.shape = {1, 32, x[0].count() / 32, 1};
                return compute(*s, {view}, out, [&](Graph& g, const std::vector<ggml_tensor*>& t) {
                  return nn::group_norm(g, t[0], nullptr, nullptr, groups, *eps);
                });
              });
      }
    }
  }
}

/// The page says 2e-6, but an ulp of one frequency moves the sine of a timestep near 1000 by 3e-5. Measured: the
/// reference's exp is one ulp above the correctly rounded value in 2 of 128 frequencies (both within 0.021 ulp of the
/// middle), which alone is 1.2e-6 and, for timesteps rounded to bf16, 2.1e-6. A wrong formula costs 1e-2 and more.
constexpr double kTime = 5e-6;

void add_time(const Units& u) {
  const Tolerance time_tolerance{Measure::relative_l2, kTime, 1,
                                 "5e-06: the reference's own exp is an ulp off in places"};
  for (const std::string& what : u.g->names("time.ernie_", "")) {
    const bool bf16_input = what.ends_with("_bf16_input");
    const int64_t width = std::atoi(what.c_str());
    if (width < 2 || width > 65536) continue;
    u.add("time.ernie_" + what, {"time.in"}, time_tolerance,
          [bf16_input, width](const std::vector<Tensor>& in, const Shape&) -> Result<Tensor> {
            std::vector<float> t = in[0].data;
            if (bf16_input)
              for (float& v : t) v = round_bf16(v);
            Tensor out;
            out.shape = {in[0].count(), width};
            out.data = ernie_image::time_sinusoid(t, width);
            return out;
          });
  }
}

/// Angles of free position ids: each is the last image token of a grid that ends there.
Result<Tensor> angles(const Tensor& ids, const Shape& out) {
  if (out.empty() || out.back() < 8 || out.back() % 16) return bad_input("[verify] units: angles expect a head size");
  ernie_image::Config c;
  c.hidden_size = out.back();
  c.num_attention_heads = 1;
  c.rope_axes_dim = {out.back() / 4, out.back() / 8 * 3, out.back() / 8 * 3};
  Tensor t;
  t.shape = out;
  for (size_t i = 0; i + 2 < ids.data.size(); i += 3) {
    const float* p = ids.data.data() + i;
    if (!(p[0] >= 0 && p[0] < 1e6f && p[1] >= 0 && p[1] < 1024 && p[2] >= 0 && p[2] < 1024))
      return bad_input("[verify] units: rope.ids expected positions from 0 to 1023");
    const auto all = ernie_image::rope_angles(c, static_cast<int64_t>(p[1]) + 1, static_cast<int64_t>(p[2]) + 1,
                                              static_cast<int64_t>(p[0]), 0);
    t.data.insert(t.data.end(), all.end() - out.back(), all.end());
  }
  if (element_count(out) != t.count())
    return bad_input("[verify] units: expected angles {}, got {}", to_string(out), t.count());
  return t;
}

/// cos and sin tables [1, T, 1, D] of angles or of given values, each repeated `times` times.
Tensor table(const Tensor& x, int times, const std::function<float(float)>& f) {
  Tensor t;
  for (const float v : x.data) t.data.insert(t.data.end(), static_cast<size_t>(times), f(v));
  const int64_t width = x.shape.empty() ? 1 : std::max<int64_t>(1, x.shape.back() * times);
  t.shape = {1, t.count() / width, 1, width};
  return t;
}

void add_rope(const Units& u) {
  u.add("rope.ernie_angles", {"rope.ids"}, f32_tolerance(page::kUnit, 0, 1),
        [](const std::vector<Tensor>& in, const Shape& out) { return angles(in[0], out); });
  u.add("rope.ernie_rotated.f32", {"rope.q", "rope.ernie_angles"}, u.elementwise(),
        [s = &u.suite](const std::vector<Tensor>& in, const Shape& out) -> Result<Tensor> {
          const Tensor cos = table(in[1], 1, [](float v) { return std::cos(v); });
          const Tensor sin = table(in[1], 1, [](float v) { return std::sin(v); });
          if (!rope_fits(in[0], cos, sin)) return bad_input("[verify] units: the angles do not belong to rope.q");
          return compute(*s, {in[0], cos, sin}, out, [](Graph& g, const std::vector<ggml_tensor*>& x) {
            return nn::rope(g, x[0], x[1], x[2], nn::RopeStyle::half);
          });
        });
  u.add("rope.zimage_rotated.f32", {"rope.q", "rope.zimage_cos", "rope.zimage_sin"}, u.elementwise(),
        [s = &u.suite](const std::vector<Tensor>& in, const Shape& out) -> Result<Tensor> {
          const auto same = [](float v) { return v; };
          const Tensor cos = table(in[1], 2, same), sin = table(in[2], 2, same);
          if (!rope_fits(in[0], cos, sin)) return bad_input("[verify] units: the tables do not belong to rope.q");
          return compute(*s, {in[0], cos, sin}, out, [](Graph& g, const std::vector<ggml_tensor*>& x) {
            return nn::rope(g, x[0], x[1], x[2], nn::RopeStyle::adjacent);
          });
        });
}

void add_attention(const Units& u) {
  const std::vector<std::string> qkv{"attention.q", "attention.k", "attention.v"};
  const auto attend = [s = &u.suite](
                          const std::vector<Tensor>& in, const Shape& out,
                          const std::function<bool(int64_t b, int64_t q, int64_t k)>& sees) -> Result<Tensor> {
    if (!attention_fits(in[0], in[1], in[2]))
      return bad_input("[verify] units: attention expects q, k, v [B, heads, T, D]");
    const int64_t batch = in[0].size(0), queries = in[0].size(2), keys = in[1].size(2);
    Tensor mask(Shape{batch, 1, queries, keys});
    for (int64_t i = 0; i < mask.count(); ++i)
      if (!sees(i / keys / queries, i / keys % queries, i % keys))
        mask.data[static_cast<size_t>(i)] = -std::numeric_limits<float>::infinity();
    const float scale = 1.0f / std::sqrt(static_cast<float>(in[0].size(3)));
    const Shape by_token{batch, queries, in[0].size(1), in[0].size(3)};  // attention returns [B, T, heads * D]
    return compute(*s, {in[0], in[1], in[2], mask}, out, [&](Graph& g, const std::vector<ggml_tensor*>& x) {
      const auto heads_last = [&](ggml_tensor* t) { return nn::permute(g, t, {0, 2, 1, 3}); };
      ggml_tensor* y = nn::attention(g, heads_last(x[0]), heads_last(x[1]), heads_last(x[2]), x[3], scale);
      return heads_last(nn::reshape(g, y, by_token));
    });
  };
  u.add("attention.causal_grouped.f32", qkv, u.matmul(), [attend](const std::vector<Tensor>& in, const Shape& out) {
    return attend(in, out, [](int64_t, int64_t q, int64_t k) { return k <= q; });
  });
  u.add("attention.masked.f32", {qkv[0], qkv[1], qkv[2], "attention.key_valid"}, u.matmul(),
        [attend](const std::vector<Tensor>& in, const Shape& out) {
          const auto keys = static_cast<size_t>(in[1].shape.size() == 4 ? in[1].size(2) : 0);
          return attend(in, out, [&](int64_t b, int64_t, int64_t k) {
            const size_t at = static_cast<size_t>(b) * keys + static_cast<size_t>(k);
            return at < in[3].data.size() && in[3].data[at] != 0;
          });
        });
}

void add_others(const Units& u) {
  const auto unary = [&](const char* key, ggml_tensor* (*f)(Graph&, ggml_tensor*)) {
    u.add_op(key, {"act.in"}, u.elementwise(), anything_fits,
             [f](Graph& g, const std::vector<ggml_tensor*>& x) { return f(g, x[0]); });
  };
  unary("act.gelu_erf.f32", nn::gelu_erf);
  unary("act.silu.f32", nn::silu);
  unary("act.tanh.f32", nn::tanh);
  const auto conv = [&](const char* key, const nn::Conv2dOptions& o, bool up) {
    u.add_op(key, {"conv.in", "conv.weight", "conv.bias"}, u.matmul(), convolution_fits,
             [o, up](Graph& g, const std::vector<ggml_tensor*>& x) {
               return nn::conv2d(g, up ? nn::upsample_nearest2(g, x[0]) : x[0], x[1], x[2], o);
             });
  };
  conv("conv.same", nn::Conv2dOptions::same(3), false);
  conv("conv.up", nn::Conv2dOptions::same(3), true);
  conv("conv.down", {.stride = 2, .pad_right = 1, .pad_bottom = 1}, false);
  for (const bool bf16 : {false, true})
    u.add(bf16 ? "image.u8.bf16" : "image.u8.f32", {"image.in"}, Tolerance::exact(),
          [bf16](const std::vector<Tensor>& in, const Shape& out) -> Result<Tensor> {
            Tensor grey;  // one row of pixels whose three channels are equal
            grey.shape = {1, 3, 1, in[0].count()};
            for (int i = 0; i < 3; ++i) grey.data.insert(grey.data.end(), in[0].data.begin(), in[0].data.end());
            DQ_TRY(const auto images, to_images(grey, bf16 ? WorkType::bf16 : WorkType::f32));
            Tensor t;
            t.shape = out;
            for (size_t i = 0; i < images[0].pixels.size(); i += 3) t.data.push_back(images[0].pixels[i]);
            return t;
          });
}

}  // namespace

void add_units(Suite& suite, const std::filesystem::path& stem) {
  const auto g = suite.golden(stem);
  const Units u{suite, g};
  if (suite.options.f32) {
    add_norms(u);
    add_time(u);
    add_rope(u);
    add_attention(u);
    add_others(u);
  }
  std::vector<std::string> bf16, zimage;
  for (const std::string& key : g->keys()) {
    if (key.ends_with(".bf16") && key != "image.u8.bf16") bf16.push_back(key);
    if (key.starts_with("time.zimage_")) zimage.push_back(key);
  }
  if (!bf16.empty()) suite.skip(g->label(), "operations in bf16", g, bf16, "this build computes activations in f32");
  if (!zimage.empty())
    suite.skip(g->label(), "time.zimage", g, zimage, "proven by the tap t_embedder of zimage-tiny/dit_f32");
}

}  // namespace danqing::app::verify
