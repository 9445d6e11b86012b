#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/try.h"
#include "models/config_checks.h"
#include "models/z_image/transformer.h"

namespace danqing::z_image {
namespace {

// The bounds keep every product of sizes far inside 63 bits; the largest known model has dim 3840.
Result<void> check(const Config& c, const std::string& where) {
  const std::array<SizeRange, 9> ranges{{{"dim", c.dim, 1, 65536},
                                         {"t_embedder width", c.time_hidden, 1, 65536},
                                         {"n_heads", c.n_heads, 1, 4096},
                                         {"n_layers", c.n_layers, 1, 1024},
                                         {"n_refiner_layers", c.n_refiner_layers, 0, 1024},
                                         {"in_channels", c.in_channels, 1, 65536},
                                         {"all_patch_size", c.patch_size, 1, 64},
                                         {"cap_feat_dim", c.cap_feat_dim, 1, 65536},
                                         {"feed_forward width", c.ffn_dim, 1, 1 << 20}}};
  DQ_CHECK(check_ranges(ranges, where));
  if (c.dim % c.n_heads != 0)
    return bad_input("[transformer] {}: expected n_heads to divide dim {}, got {}", where, c.dim, c.n_heads);
  if (c.axes_dims.size() != 3 || c.axes_lens.size() != 3)
    return bad_input("[transformer] {}: fields 'axes_dims' and 'axes_lens' expected 3 sizes each, got {} and {}", where,
                     c.axes_dims.size(), c.axes_lens.size());
  DQ_CHECK(check_rope_axes("axes_dims", c.axes_dims, c.head_dim(), "dim / n_heads", where));
  for (int64_t n : c.axes_lens)
    if (n < 1 || n > (1 << 20))
      return bad_input("[transformer] {}: field 'axes_lens' expected 1 to {}, got {}", where, 1 << 20, n);
  if (!(c.rope_theta >= 1 && c.rope_theta <= 1e12))
    return bad_input("[transformer] {}: field 'rope_theta' expected 1 to 1e12, got {}", where, c.rope_theta);
  if (!(c.t_scale > 0 && c.t_scale <= 1e6))
    return bad_input("[transformer] {}: field 't_scale' expected more than 0 and at most 1e6, got {}", where,
                     c.t_scale);
  if (!(c.norm_eps > 0 && c.norm_eps <= 0.1f))
    return bad_input("[transformer] {}: field 'norm_eps' expected more than 0 and at most 0.1, got {}", where,
                     c.norm_eps);
  return {};
}

/// The patch size whose frames are one deep: pictures have one frame.
Result<int64_t> picture_patch(const JsonObject& o) {
  DQ_TRY(const Shape sizes, o.integers("all_patch_size", Shape{2}));
  DQ_TRY(const Shape frames, o.integers("all_f_patch_size", Shape{1}));
  for (size_t i = 0; i < sizes.size() && i < frames.size(); ++i)
    if (frames[i] == 1) return sizes[i];
  return bad_input("[transformer] {}: expected an entry of all_patch_size whose all_f_patch_size is 1, got [{}]",
                   o.where(), fmt::join(frames, ", "));
}

// Finds a tensor by its own name behind whatever prefix the exporter put there.
class Finder {
 public:
  explicit Finder(const TensorSource& source) : source_(source) {
    constexpr std::string_view anchor = "cap_pad_token";
    for (const TensorInfo& t : source.tensors())
      if (t.name.ends_with(anchor)) prefix_ = t.name.substr(0, t.name.size() - anchor.size());
    for (const TensorInfo& t : source.tensors())
      if (t.name.starts_with(prefix_ + "all_x_embedder."))
        embedder_ = t.name.substr(prefix_.size(), t.name.rfind('.') - prefix_.size());
  }
  const TensorInfo* find(const std::string& name) const { return source_.find(prefix_ + name); }
  /// "x_embedder", or "all_x_embedder.2-1" in the names of diffusers.
  const std::string& embedder() const { return embedder_; }
  Result<int64_t> axis(const std::string& name, size_t i) const {
    const TensorInfo* t = find(name);
    if (!t)
      return bad_input("[transformer] {}: expected tensor '{}' of a Z-Image transformer, got none",
                       source_.path().string(), name);
    if (t->shape.size() <= i || t->shape[i] < 1)
      return bad_input("[transformer] {}: tensor '{}' expected {} axes, got {}", source_.path().string(), t->name,
                       i + 1, to_string(t->shape));
    return t->shape[i];
  }
  int64_t count(const char* list) const {
    int64_t n = 0;
    while (n < 1025 && find(fmt::format("{}.{}.attention_norm1.weight", list, n))) ++n;
    return n;
  }

 private:
  const TensorSource& source_;
  std::string prefix_, embedder_ = "x_embedder";
};

}  // namespace

Result<Config> Config::parse(const Json& json, const std::string& where) {
  DQ_TRY(const JsonObject o, JsonObject::of(json, where));
  DQ_TRY(const std::string class_name, o.string("_class_name", "ZImageTransformer2DModel"));
  if (class_name != "ZImageTransformer2DModel")
    return bad_input("[transformer] {}: expected _class_name ZImageTransformer2DModel, got '{}'", where, class_name);
  Config c;
  DQ_TRY(c.dim, o.integer("dim"));
  DQ_TRY(c.n_heads, o.integer("n_heads"));
  DQ_TRY(c.n_layers, o.integer("n_layers"));
  DQ_TRY(c.n_refiner_layers, o.integer("n_refiner_layers"));
  DQ_TRY(c.in_channels, o.integer("in_channels"));
  DQ_TRY(c.cap_feat_dim, o.integer("cap_feat_dim"));
  DQ_TRY(c.patch_size, picture_patch(o));
  DQ_TRY(c.axes_dims, o.integers("axes_dims", Shape{32, 48, 48}));
  DQ_TRY(c.axes_lens, o.integers("axes_lens", Shape{1024, 512, 512}));
  DQ_TRY(c.rope_theta, o.number("rope_theta", 256.0));
  DQ_TRY(c.t_scale, o.number("t_scale", 1000.0));
  DQ_TRY(const double eps, o.number("norm_eps", 1e-5));
  c.norm_eps = eps < 1 ? static_cast<float>(eps) : 1.0f;  // 1 is refused below
  DQ_TRY(c.qk_norm, o.boolean("qk_norm", true));
  DQ_TRY(const int64_t kv_heads, o.integer("n_kv_heads", c.n_heads));
  if (kv_heads != c.n_heads)
    return bad_input("[transformer] {}: expected n_kv_heads equal to n_heads {}, got {}", where, c.n_heads, kv_heads);
  c.ffn_dim = c.dim > 0 && c.dim <= 65536 ? static_cast<int64_t>(static_cast<double>(c.dim) / 3 * 8) : 1;
  DQ_CHECK(check(c, where));
  return c;
}

Result<Config> Config::infer(const TensorSource& source) {
  const std::string where = source.path().string();
  const Finder f(source);
  Config c;
  DQ_TRY(c.dim, f.axis(f.embedder() + ".weight", 0));
  DQ_TRY(const int64_t patch_values, f.axis(f.embedder() + ".weight", 1));
  if (const size_t dot = f.embedder().find('.'); dot != std::string::npos)
    c.patch_size = std::clamp(std::atoi(f.embedder().c_str() + dot + 1), 1, 64);
  c.in_channels = patch_values / (c.patch_size * c.patch_size);
  if (c.in_channels * c.patch_size * c.patch_size != patch_values)
    return bad_input("[transformer] {}: tensor '{}.weight' expected columns in multiples of {}, got {}", where,
                     f.embedder(), c.patch_size * c.patch_size, patch_values);
  DQ_TRY(c.cap_feat_dim, f.axis("cap_embedder.0.weight", 0));
  DQ_TRY(c.time_hidden, f.axis("t_embedder.mlp.0.weight", 0));
  DQ_TRY(c.ffn_dim, f.axis("layers.0.feed_forward.w1.weight", 0));
  c.n_layers = f.count("layers");
  c.n_refiner_layers = f.count("noise_refiner");
  int64_t head_dim = 128;  // every known checkpoint; only needed where no norm weight tells
  const std::string a = "layers.0.attention.",
                    norm = a + (f.find(a + "norm_q.weight") ? "norm_q" : "q_norm") + ".weight";
  c.qk_norm = f.find(norm) != nullptr;
  if (c.qk_norm) {
    DQ_TRY(head_dim, f.axis(norm, 0));
  }
  if (head_dim > 65536 || head_dim % 16 != 0 || c.dim % head_dim != 0)
    return bad_input(
        "[transformer] {}: head size {} with dim {} expected a config.json beside the weights "
        "(sizes can only be guessed for head sizes that are multiples of 16)",
        where, head_dim, c.dim);
  c.n_heads = c.dim / head_dim;
  c.axes_dims = {head_dim / 4, head_dim * 3 / 8, head_dim * 3 / 8};
  c.axes_lens = {1536, 512, 512};
  DQ_CHECK(check(c, where));
  return c;
}

}  // namespace danqing::z_image
