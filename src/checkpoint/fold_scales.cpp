// Scales that a file keeps as tensors of their own, given to the weights that they belong to. The conventions:
//   FP8, int8   X.weight with X.weight_scale, X.scale_weight (ComfyUI's first format) or X.weight_scale_inv
//               (transformers; a factor all the same)
//   NVFP4       X.weight of uint8 pairs, X.weight_scale in FP8 for each 16 values, X.weight_scale_2 for the tensor.
//               ComfyUI keeps the first value of a pair in the high half and the scales in tiles; ModelOpt keeps the
//               first in the low half and the scales row by row. Shapes alone do not tell them apart: ComfyUI's marker
//               does (X.comfy_quant, or the layer's entry in the metadata "_quantization_metadata").
//   GGUF NVFP4  X.weight with X.scale for the tensor
// Scales of activations are left out: activations stay floats here.
#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/source_builder.h"

namespace danqing {
namespace {

using Layout = TensorScale::Layout;

constexpr std::string_view kWeight = ".weight", kMarker = ".comfy_quant";
constexpr const char* kScales[] = {".weight_scale", ".scale_weight", ".weight_scale_inv"};
constexpr const char* kActivationScales[] = {".input_scale", ".scale_input", ".activation_scale"};
constexpr std::string_view kFp8Marker = "scaled_fp8";
constexpr size_t kMaxMarker = 65536;

bool ends_with(std::string_view s, std::string_view tail) {
  return s.size() >= tail.size() && s.substr(s.size() - tail.size()) == tail;
}
bool is_float(DType t) { return t == DType::f64 || t == DType::f32 || t == DType::f16 || t == DType::bf16; }
int64_t blocks(int64_t n, int64_t size) { return (n + size - 1) / size; }

class Folder {
 public:
  Folder(std::vector<TensorInfo>& tensors, const TensorSource& source) : tensors_(tensors), source_(source) {}

  Result<void> run() {
    for (const TensorInfo& t : tensors_) by_name_.emplace(t.name, &t);
    DQ_CHECK(read_markers());
    for (TensorInfo& t : tensors_)
      if (ends_with(t.name, kWeight)) DQ_CHECK(fold(t));
    if (used_.empty()) return {};
    // The views of by_name_ end here.
    by_name_.clear();
    tensors_.erase(
        std::remove_if(tensors_.begin(), tensors_.end(), [&](const TensorInfo& t) { return used_.count(t.name) > 0; }),
        tensors_.end());
    return {};
  }

 private:
  const TensorInfo* find(const std::string& name) const {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : it->second;
  }
  std::string where(const TensorInfo& t) const {
    return source_.files().empty() ? source_.path().string() : source_.files()[t.file].string();
  }
  template <class... A>
  Error wrong(const TensorInfo& t, fmt::format_string<A...> f, A&&... args) const {
    return bad_input("[checkpoint] {}: tensor '{}' {}", where(t), one_line(t.name),
                     fmt::format(f, std::forward<A>(args)...));
  }

  // Layer name -> its marker; layers of the metadata may lack the prefix that the tensors have.
  Result<void> read_markers() {
    if (const auto it = source_.metadata().find("_quantization_metadata"); it != source_.metadata().end()) {
      DQ_TRY(const Json json, parse_json(it->second, source_.path().string() + ": _quantization_metadata"));
      const auto layers = json.is_object() ? json.find("layers") : json.end();
      if (!json.is_object() || layers == json.end() || !layers->is_object())
        return bad_input("[checkpoint] {}: _quantization_metadata expected an object with 'layers', got {}",
                         source_.path().string(), one_line(it->second, 60));
      for (const auto& [layer, marker] : layers->items()) markers_[layer] = marker;
    }
    for (const TensorInfo& t : tensors_) {
      if (t.name == kFp8Marker || ends_with(t.name, "." + std::string(kFp8Marker))) {
        used_.insert(t.name);
        fp8_prefixes_.push_back(t.name.substr(0, t.name.size() - kFp8Marker.size()));
      }
      if (!ends_with(t.name, kMarker)) continue;
      const auto bytes = source_.bytes(t);
      if (t.dtype != DType::u8 || bytes.size() > kMaxMarker)
        return wrong(t, "expected a short JSON text as uint8, got {} {}", name(t.dtype), to_string(t.shape));
      const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      DQ_TRY(Json json, parse_json(text, where(t) + ": " + one_line(t.name)));
      markers_[t.name.substr(0, t.name.size() - kMarker.size())] = std::move(json);
      used_.insert(t.name);
    }
    return {};
  }

  const Json* marker_of(const std::string& layer) const {
    for (size_t from = 0;;) {
      if (const auto it = markers_.find(layer.substr(from)); it != markers_.end()) return &it->second;
      from = layer.find('.', from);
      if (from++ == std::string::npos) return nullptr;
    }
  }
  // {"format": "nvfp4", ...}, or the format alone.
  static std::string format_of(const Json* marker) {
    if (!marker) return "";
    if (marker->is_string()) return marker->get<std::string>();
    const auto it = marker->is_object() ? marker->find("format") : marker->end();
    return marker->is_object() && it != marker->end() && it->is_string() ? it->get<std::string>() : "?";
  }
  static bool flag(const Json* marker, const char* key) {
    if (!marker || !marker->is_object()) return false;
    const auto it = marker->find(key);
    return it != marker->end() && !it->is_null() && *it != Json(false);
  }

  Result<void> fold(TensorInfo& t) {
    const bool fp8 = t.dtype == DType::f8_e4m3 || t.dtype == DType::f8_e5m2;
    if (!fp8 && t.dtype != DType::u8 && t.dtype != DType::i8 && t.dtype != DType::nvfp4) return {};
    const std::string layer = t.name.substr(0, t.name.size() - kWeight.size());
    const Json* marker = marker_of(layer);
    const std::string format = format_of(marker);
    const TensorInfo* scale = nullptr;
    for (const char* suffix : kScales)
      if (const TensorInfo* found = find(layer + suffix)) {
        if (scale)
          return wrong(t, "expected one scale, got '{}' and '{}'", one_line(scale->name), one_line(found->name));
        scale = found;
      }
    if (t.dtype == DType::nvfp4) scale = find(layer + ".scale");
    if (flag(marker, "convrot") || find(layer + ".pre_quant_scale"))
      return wrong(t,
                   "expected a weight with scales, got one whose inputs are transformed too (rotated or smoothed), "
                   "which is not supported; use another file");

    TensorScale s;
    if (t.dtype == DType::nvfp4) {
      if (!scale) return {};
      DQ_CHECK(floats(t, *scale));
      DQ_CHECK(one_value(t, *scale));
    } else if (t.dtype == DType::u8) {
      const bool packed = format == "nvfp4" || (marker == nullptr && scale && scale->dtype == DType::f8_e4m3);
      if (!packed && !scale && !marker) return {};
      if (!packed)
        return wrong(t, "expected uint8 pairs with FP8 scales (NVFP4), got {}{}", format.empty() ? "scales in " : "",
                     format.empty() ? std::string(name(scale->dtype)) : "the format '" + one_line(format, 40) + "'");
      DQ_CHECK(nvfp4(t, layer, scale, marker != nullptr, s));
    } else {
      static const std::set<std::string> known = {"", "float8_e4m3fn", "float8_e5m2", "mxfp8", "int8_tensorwise"};
      if (!known.count(format))
        return wrong(t, "expected a format out of float8_e4m3fn, float8_e5m2, mxfp8, int8_tensorwise, nvfp4, got '{}'",
                     one_line(format, 40));
      if (!scale) {
        const bool needed = marker || (fp8 && t.shape.size() > 1 && marked_as_fp8(t.name));
        if (needed) return wrong(t, "expected a scale '{}', got none; the file is damaged", layer + kScales[0]);
        return {};
      }
      DQ_CHECK(scaled(t, *scale, format, s));
    }
    s.values = *scale;
    used_.insert(scale->name);
    for (const char* suffix : kActivationScales)
      if (find(layer + suffix)) used_.insert(layer + suffix);
    t.scale = std::make_shared<const TensorScale>(std::move(s));
    return {};
  }

  bool marked_as_fp8(const std::string& name) const {
    return std::any_of(fp8_prefixes_.begin(), fp8_prefixes_.end(),
                       [&](const std::string& p) { return name.compare(0, p.size(), p) == 0; });
  }

  Result<void> floats(const TensorInfo& t, const TensorInfo& scale) const {
    if (is_float(scale.dtype)) return {};
    return wrong(t, "expected the scale '{}' in floats, got {}", one_line(scale.name), name(scale.dtype));
  }
  Result<void> one_value(const TensorInfo& t, const TensorInfo& scale) const {
    if (element_count(scale.shape) == 1) return {};
    return wrong(t, "expected the scale '{}' to be one number, got {}", one_line(scale.name), to_string(scale.shape));
  }
  Error wrong_shape(const TensorInfo& t, const TensorInfo& scale, const std::string& expected) const {
    return wrong(t, "{}: expected the scale '{}' {}, got {}", to_string(t.shape), one_line(scale.name), expected,
                 to_string(scale.shape));
  }

  Result<void> scaled(const TensorInfo& t, const TensorInfo& scale, const std::string& format, TensorScale& s) const {
    const int64_t rows = t.shape.empty() ? 1 : t.shape[0], columns = t.shape.empty() ? 1 : t.shape.back();
    if (scale.dtype == DType::f8_e8m0 || format == "mxfp8") {
      if (scale.dtype != DType::f8_e8m0 && scale.dtype != DType::u8)
        return wrong(t, "expected the scale '{}' in powers of two, got {}", one_line(scale.name), name(scale.dtype));
      return block_scaled(t, scale, 32, format == "mxfp8", s);
    }
    DQ_CHECK(floats(t, scale));
    const Shape& shape = scale.shape;
    if (element_count(shape) == 1) return {};
    if (t.shape.size() == 2) {
      if (shape == Shape{rows} || shape == Shape{rows, 1}) return s.layout = Layout::rows, Result<void>();
      constexpr int64_t kBlock = 128;
      if (shape == Shape{blocks(rows, kBlock), blocks(columns, kBlock)}) {
        s.layout = Layout::grid;
        s.block_rows = s.block_columns = kBlock;
        return {};
      }
    }
    return wrong_shape(t, scale, "to be one number, one a row, or one a block of 128x128");
  }

  Result<void> block_scaled(const TensorInfo& t, const TensorInfo& scale, int64_t block, bool tiled,
                            TensorScale& s) const {
    if (t.shape.size() != 2 || t.shape[1] % block != 0)
      return wrong(t, "expected a matrix with rows of whole blocks of {}, got {}", block, to_string(t.shape));
    const int64_t rows = t.shape[0], columns = t.shape[1] / block;
    s.block_columns = block;
    s.layout = tiled ? Layout::tiles : Layout::grid;
    const Shape expected = tiled ? Shape{blocks(rows, 128) * 128, blocks(columns, 4) * 4} : Shape{rows, columns};
    if (scale.shape != expected && !(tiled && scale.shape == Shape{element_count(expected)}))
      return wrong_shape(t, scale, to_string(expected));
    return {};
  }

  Result<void> nvfp4(TensorInfo& t, const std::string& layer, const TensorInfo* scale, bool comfy, TensorScale& s) {
    const TensorInfo* global = find(layer + ".weight_scale_2");
    for (const auto& [found, suffix] : {std::pair(scale, ".weight_scale"), std::pair(global, ".weight_scale_2")})
      if (!found) return wrong(t, "expected a scale '{}', got none; the file is damaged", layer + suffix);
    if (t.shape.size() != 2 || t.shape[1] > INT64_MAX / 4)
      return wrong(t, "expected a matrix of uint8 pairs, got {}", to_string(t.shape));
    if (scale->dtype != DType::f8_e4m3)
      return wrong(t, "expected the scale '{}' in f8_e4m3, got {}", one_line(scale->name), name(scale->dtype));
    t.dtype = comfy ? DType::f4_e2m1_hi : DType::f4_e2m1;
    t.shape[1] *= 2;
    DQ_CHECK(block_scaled(t, *scale, 16, comfy, s));
    DQ_CHECK(floats(t, *global));
    DQ_CHECK(one_value(t, *global));
    s.global = *global;
    used_.insert(global->name);
    return {};
  }

  std::vector<TensorInfo>& tensors_;
  const TensorSource& source_;
  std::unordered_map<std::string, const TensorInfo*> by_name_;
  std::unordered_map<std::string, Json> markers_;
  std::vector<std::string> fp8_prefixes_;
  std::set<std::string> used_;
};

}  // namespace

Result<void> fold_scales(std::vector<TensorInfo>& tensors, const TensorSource& source) {
  return Folder(tensors, source).run();
}

}  // namespace danqing
