#include "convert/plan.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "base/try.h"
#include "checkpoint/tensor_writer.h"
#include "device/dequantize.h"

namespace danqing::app {
namespace {

using Format = TensorSource::Format;

// Parts of names, from the beginning of a part. ERNIE-Image's and Z-Image's, in the spelling of diffusers and of the
// original files.
constexpr std::array kEnds = {"x_embedder", "all_x_embedder", "text_proj",    "cap_embedder",
                              "final_norm", "final_linear",   "final_layer.", "all_final_layer."};
constexpr std::array kModulation = {"adaLN_modulation.", "time_embedding.", "t_embedder."};
constexpr std::array kTables = {"embed_tokens.", "lm_head."};

template <size_t N>
bool has_part(std::string_view name, const std::array<const char*, N>& parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
    for (size_t i = name.find(part); i != std::string_view::npos; i = name.find(part, i + 1))
      if (i == 0 || name[i - 1] == '.') return true;
    return false;
  });
}

bool is_float(DType t) { return t == DType::f32 || t == DType::f16 || t == DType::bf16; }
bool is_fp8(DType t) { return t == DType::f8_e4m3 || t == DType::f8_e5m2; }
bool is_integer(DType t) { return t >= DType::i64 && t <= DType::boolean; }
double bits(DType t) { return 8.0 * traits(t).block_bytes / traits(t).block_elements; }

bool in_format(DType t, Format f) {
  return f == Format::gguf ? traits(t).ggml_type >= 0 : !traits(t).safetensors.empty();
}

/// What a tensor is written as when it is not to be quantised.
DType kept_type(const TensorInfo& t, Format format) {
  if (is_float(t.dtype) || (t.plain() && in_format(t.dtype, format))) return t.dtype;
  if (is_integer(t.dtype) && !t.scale) return t.dtype;
  return t.dtype == DType::f64 ? DType::f32 : DType::bf16;
}

PlannedTensor choose(const TensorInfo& t, DType type, Format format) {
  const DType kept = kept_type(t, format);
  if (is_integer(t.dtype) && !t.scale) return {&t, kept, false, "integers"};
  if (is_float(type)) {
    // ggml adds norms and biases in f32 only.
    if (format == Format::gguf && t.shape.size() < 2 && type != DType::f32) return {&t, DType::f32, false, "vector"};
    return {&t, type, false, ""};
  }
  if (t.shape.size() < 2) return {&t, format == Format::gguf ? DType::f32 : kept, false, "vector"};
  if (t.shape.size() > 2) return {&t, kept, false, "convolution"};
  if (has_part(t.name, kModulation)) return {&t, kept, false, "modulation"};
  if (has_part(t.name, kEnds)) return {&t, kept, false, "first or last layer"};
  if (is_fp8(type)) {
    if (t.plain() && t.dtype == type) return {&t, type, false, ""};
    if (t.name.size() > 7 && t.name.compare(t.name.size() - 7, 7, ".weight") == 0) return {&t, type, true, ""};
    return {&t, kept, false, "no weight of a layer"};
  }
  PlannedTensor p{&t, type, false, ""};
  if (has_part(t.name, kTables) && bits(type) < bits(DType::q6_k)) p = {&t, DType::q6_k, false, "embedding"};
  if (!tensor_bytes(p.dtype, t.shape)) p = {&t, DType::q8_0, false, "rows are no whole blocks"};
  if (!tensor_bytes(p.dtype, t.shape)) p = {&t, kept, false, "rows are no whole blocks"};
  return p;
}

std::string type_list(Format format) {
  std::string out;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto t = static_cast<DType>(i);
    if (can_quantize(t) && in_format(t, format)) out += (out.empty() ? "" : ", ") + std::string(name(t));
  }
  return out;
}

}  // namespace

Result<DType> parse_type(std::string_view text, Format format, std::string_view option) {
  if (text == "fp8") text = "f8_e4m3";
  const auto t = dtype_from_name(text);
  if (t && can_quantize(*t) && in_format(*t, format)) return *t;
  const std::string_view kind = format == Format::gguf ? "GGUF" : "safetensors";
  return usage_error("[{}] expected a type that can be written to {} ({}), got '{}'", option, kind, type_list(format),
                     one_line(text, 40));
}

Result<TypeRule> parse_rule(std::string_view text, Format format) {
  const size_t at = text.rfind('=');
  if (at == std::string_view::npos || at == 0)
    return usage_error("[--tensor-type] expected PATTERN=TYPE, got '{}'", one_line(text, 60));
  TypeRule rule{.pattern = std::string(text.substr(0, at))};
  const std::string_view type = text.substr(at + 1);
  if (type == "keep" || type == "drop") {
    rule.action = type == "keep" ? TypeRule::Action::keep : TypeRule::Action::drop;
    return rule;
  }
  DQ_TRY(rule.dtype, parse_type(type, format, "--tensor-type"));
  return rule;
}

bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.find_first_of("*?") == std::string_view::npos) return name.find(pattern) != std::string_view::npos;
  // The last star takes one character more whenever what follows it does not fit.
  size_t p = 0, n = 0, star = std::string_view::npos, from = 0;
  while (n < name.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n]) && pattern[p] != '*') {
      ++p, ++n;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++from;
    } else {
      return false;
    }
  }
  return std::all_of(pattern.begin() + static_cast<std::ptrdiff_t>(p), pattern.end(), [](char c) { return c == '*'; });
}

Result<std::vector<PlannedTensor>> plan_types(const TensorSource& source, DType type,
                                              const std::vector<TypeRule>& rules, Format format,
                                              std::vector<bool>& matched) {
  std::vector<PlannedTensor> plan;
  for (const TensorInfo& t : source.tensors()) {
    PlannedTensor p = choose(t, type, format);
    const TypeRule* rule = nullptr;
    for (size_t i = 0; i < rules.size(); ++i)
      if (matches(rules[i].pattern, t.name)) rule = &rules[i], matched[i] = true;
    if (rule && rule->action == TypeRule::Action::drop) continue;
    if (rule) {
      p.reason = "asked for";
      p.dtype = rule->action == TypeRule::Action::keep ? kept_type(t, format) : rule->dtype;
      p.with_scale = is_fp8(p.dtype) && !(t.plain() && t.dtype == p.dtype) && t.shape.size() > 1;
    }
    if (!in_format(p.dtype, format) || !tensor_bytes(p.dtype, t.shape))
      return usage_error(
          "[convert] {}: tensor '{}' {} cannot be written as {}{}; choose with --tensor-type '{}=TYPE' or =drop",
          source.path().string(), one_line(t.name), to_string(t.shape), name(p.dtype),
          in_format(p.dtype, format) ? " (rows of whole blocks)" : "", one_line(t.name));
    plan.push_back(p);
  }
  return plan;
}

}  // namespace danqing::app
