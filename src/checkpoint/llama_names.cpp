// Language models as llama.cpp stores them: its tensor names to those of transformers, and the order of the rows of q
// and k, which its converter interleaves for architectures that rotate neighbouring pairs.
#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "base/try.h"
#include "checkpoint/source_builder.h"

namespace danqing {
namespace {

struct Architecture {
  std::string_view name;
  bool interleaved;  // q and k
};
constexpr Architecture kArchitectures[] = {{"llama", true}, {"mistral3", true}, {"qwen3", false}};

struct Part {
  std::string_view theirs, ours;
};
constexpr Part kTopParts[] = {
    {"token_embd.", "model.embed_tokens."}, {"output_norm.", "model.norm."}, {"output.", "lm_head."}};
constexpr Part kLayerParts[] = {{"attn_norm.", "input_layernorm."},    {"attn_q.", "self_attn.q_proj."},
                                {"attn_k.", "self_attn.k_proj."},      {"attn_v.", "self_attn.v_proj."},
                                {"attn_output.", "self_attn.o_proj."}, {"attn_q_norm.", "self_attn.q_norm."},
                                {"attn_k_norm.", "self_attn.k_norm."}, {"ffn_norm.", "post_attention_layernorm."},
                                {"ffn_gate.", "mlp.gate_proj."},       {"ffn_up.", "mlp.up_proj."},
                                {"ffn_down.", "mlp.down_proj."}};
constexpr std::string_view kLayer = "blk.";

template <size_t N>
std::string replaced_front(std::string_view name, const Part (&parts)[N]) {
  for (const Part& p : parts)
    if (name.substr(0, p.theirs.size()) == p.theirs)
      return std::string(p.ours) + std::string(name.substr(p.theirs.size()));
  return std::string(name);
}

std::string translated(std::string_view name) {
  if (name.substr(0, kLayer.size()) != kLayer) return replaced_front(name, kTopParts);
  const size_t dot = name.find('.', kLayer.size());
  if (dot == std::string_view::npos) return std::string(name);
  return "model.layers." + std::string(name.substr(kLayer.size(), dot + 1 - kLayer.size())) +
         replaced_front(name.substr(dot + 1), kLayerParts);
}

bool ends_with(std::string_view s, std::string_view tail) {
  return s.size() >= tail.size() && s.substr(s.size() - tail.size()) == tail;
}

std::optional<int64_t> integer(const std::map<std::string, std::string>& metadata, const std::string& key) {
  const auto it = metadata.find(key);
  if (it == metadata.end()) return {};
  int64_t v = 0;
  const char* end = it->second.data() + it->second.size();
  const auto r = std::from_chars(it->second.data(), end, v);
  if (r.ec != std::errc() || r.ptr != end) return {};
  return v;
}

// Rows of one head: told by the file, else what the language models that this program runs have.
int64_t head_size(const std::map<std::string, std::string>& metadata, const std::string& architecture) {
  for (const char* key : {".attention.key_length", ".rope.dimension_count"})
    if (const auto v = integer(metadata, architecture + key)) return *v;
  const auto width = integer(metadata, architecture + ".embedding_length");
  const auto heads = integer(metadata, architecture + ".attention.head_count");
  if (width && heads && *heads > 0) return *width / *heads;
  return 128;
}

}  // namespace

Result<void> translate_llama_names(std::vector<TensorInfo>& tensors, const std::map<std::string, std::string>& metadata,
                                   const std::string& where) {
  const auto has = [&](std::string_view front) {
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const TensorInfo& t) { return t.name.substr(0, front.size()) == front; });
  };
  if (!has("token_embd.") || !has("blk.0.attn_q.")) return {};
  const auto it = metadata.find("general.architecture");
  // Without an architecture the norms of q and k tell Qwen3 from the llama-like ones.
  const std::string name = it != metadata.end() ? it->second : has("blk.0.attn_q_norm.") ? "qwen3" : "llama";
  const auto* known = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                   [&](const Architecture& a) { return a.name == name; });
  if (known == std::end(kArchitectures)) return {};  // another model: described under its own names
  const int64_t head = known->interleaved ? head_size(metadata, name) : 0;
  for (TensorInfo& t : tensors) {
    t.name = translated(t.name);
    if (!known->interleaved) continue;
    if (!ends_with(t.name, "self_attn.q_proj.weight") && !ends_with(t.name, "self_attn.k_proj.weight")) continue;
    if (t.shape.size() != 2 || head < 2 || head % 2 != 0 || t.shape[0] % head != 0)
      return bad_input("[checkpoint] {}: tensor '{}' expected rows in heads of {} as its metadata say, got {}", where,
                       one_line(t.name), head, to_string(t.shape));
    t.interleaved_head = head;
  }
  return {};
}

}  // namespace danqing
