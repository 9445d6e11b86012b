#include <algorithm>
#include <array>

#include "base/try.h"
#include "models/config_checks.h"
#include "models/ernie_image/transformer.h"

namespace danqing::ernie_image {
namespace {

// The bounds keep every product of sizes far inside 63 bits; the largest known model has a hidden size of 4096.
Result<void> check_sizes(const Config& c, const std::string& where) {
  const std::array<SizeRange, 8> ranges{{{"hidden_size", c.hidden_size, 1, 65536},
                                         {"num_attention_heads", c.num_attention_heads, 1, 4096},
                                         {"num_layers", c.num_layers, 1, 1024},
                                         {"ffn_hidden_size", c.ffn_hidden_size, 1, 1 << 20},
                                         {"in_channels", c.in_channels, 1, 65536},
                                         {"out_channels", c.out_channels, 1, 65536},
                                         {"patch_size", c.patch_size, 1, 64},
                                         {"text_in_dim", c.text_in_dim, 1, 65536}}};
  return check_ranges(ranges, where);
}

Result<void> check(const Config& c, const std::string& where) {
  DQ_CHECK(check_sizes(c, where));
  if (c.hidden_size % c.num_attention_heads != 0)
    return bad_input("[transformer] {}: expected num_attention_heads to divide hidden_size {}, got {}", where,
                     c.hidden_size, c.num_attention_heads);
  if (c.rope_axes_dim.size() != 3)
    return bad_input("[transformer] {}: field 'rope_axes_dim' expected 3 sizes, got {}", where, c.rope_axes_dim.size());
  DQ_CHECK(check_rope_axes("rope_axes_dim", c.rope_axes_dim, c.head_dim(), "hidden_size / heads", where));
  if (!(c.rope_theta >= 1 && c.rope_theta <= 1e12))
    return bad_input("[transformer] {}: field 'rope_theta' expected 1 to 1e12, got {}", where, c.rope_theta);
  if (!(c.eps > 0 && c.eps <= 0.1f))
    return bad_input("[transformer] {}: field 'eps' expected more than 0 and at most 0.1, got {}", where, c.eps);
  return {};
}

// Finds a tensor whatever prefix the exporter put in front of our names.
class Finder {
 public:
  explicit Finder(const TensorSource& source) : source_(source) {
    for (const std::string& p : name_map().prefixes)
      if (source.find(p + "x_embedder.proj.weight")) prefix_ = p;
  }
  bool has(const std::string& name) const { return source_.find(prefix_ + name) != nullptr; }
  /// Shape of a tensor with at least `rank` axes.
  Result<Shape> shape(const std::string& name, size_t rank) const {
    const TensorInfo* t = source_.find(prefix_ + name);
    if (!t) {
      return bad_input("[transformer] {}: expected tensor '{}' of an ERNIE-Image transformer, got none",
                       source_.path().string(), name);
    }
    if (t->shape.size() < rank || std::any_of(t->shape.begin(), t->shape.end(), [](int64_t d) { return d < 1; })) {
      return bad_input("[transformer] {}: tensor '{}' expected {} axes, got {}", source_.path().string(), t->name, rank,
                       to_string(t->shape));
    }
    return t->shape;
  }

 private:
  const TensorSource& source_;
  std::string prefix_;
};

}  // namespace

Result<Config> Config::parse(const Json& json, const std::string& where) {
  DQ_TRY(JsonObject o, JsonObject::of(json, where));
  DQ_TRY(std::string class_name, o.string("_class_name", "ErnieImageTransformer2DModel"));
  if (class_name != "ErnieImageTransformer2DModel")
    return bad_input("[transformer] {}: expected _class_name ErnieImageTransformer2DModel, got '{}'", where,
                     class_name);
  Config c;
  DQ_TRY(c.hidden_size, o.integer("hidden_size"));
  DQ_TRY(c.num_attention_heads, o.integer("num_attention_heads"));
  DQ_TRY(c.num_layers, o.integer("num_layers"));
  DQ_TRY(c.ffn_hidden_size, o.integer("ffn_hidden_size"));
  DQ_TRY(c.in_channels, o.integer("in_channels"));
  DQ_TRY(c.out_channels, o.integer("out_channels"));
  DQ_TRY(c.text_in_dim, o.integer("text_in_dim"));
  DQ_TRY(c.patch_size, o.integer("patch_size", 1));
  DQ_TRY(c.rope_axes_dim, o.integers("rope_axes_dim", Shape{32, 48, 48}));
  DQ_TRY(c.rope_theta, o.number("rope_theta", 256.0));
  DQ_TRY(double eps, o.number("eps", 1e-6));
  c.eps = eps < 1 ? static_cast<float>(eps) : 1.0f;  // 1 is refused below
  DQ_TRY(c.qk_layernorm, o.boolean("qk_layernorm", true));
  DQ_CHECK(check(c, where));
  return c;
}

Result<Config> Config::infer(const TensorSource& source) {
  const std::string where = source.path().string();
  const Finder f(source);
  Config c;
  DQ_TRY(Shape embed, f.shape("x_embedder.proj.weight", 2));
  c.hidden_size = embed[0];
  c.in_channels = embed[1];
  c.patch_size = embed.size() == 4 ? embed[2] : 1;
  if (c.patch_size > 64)
    return bad_input("[transformer] {}: patch embedding {} expected a kernel of at most 64x64", where,
                     to_string(embed));
  c.text_in_dim = c.hidden_size;
  if (f.has("text_proj.weight")) {
    DQ_TRY(Shape text, f.shape("text_proj.weight", 2));
    c.text_in_dim = text[1];
  }
  DQ_TRY(Shape gate, f.shape("layers.0.mlp.gate_proj.weight", 2));
  c.ffn_hidden_size = gate[0];
  DQ_TRY(Shape last, f.shape("final_linear.weight", 2));
  c.out_channels = last[0] / (c.patch_size * c.patch_size);
  while (f.has(fmt::format("layers.{}.adaLN_sa_ln.weight", c.num_layers))) ++c.num_layers;

  int64_t head_dim = 128;  // every known checkpoint; only needed where no norm weight tells
  c.qk_layernorm = f.has("layers.0.self_attention.norm_q.weight");
  if (c.qk_layernorm) {
    DQ_TRY(Shape norm, f.shape("layers.0.self_attention.norm_q.weight", 1));
    head_dim = norm[0];
  }
  if (head_dim > 65536 || head_dim % 16 != 0 || c.hidden_size % head_dim != 0) {
    return bad_input(
        "[transformer] {}: head size {} with hidden size {} expected a config.json beside the weights "
        "(sizes can only be guessed for head sizes that are multiples of 16)",
        where, head_dim, c.hidden_size);
  }
  c.num_attention_heads = c.hidden_size / head_dim;
  c.rope_axes_dim = {head_dim / 4, head_dim * 3 / 8, head_dim * 3 / 8};
  DQ_CHECK(check(c, where));
  return c;
}

}  // namespace danqing::ernie_image
