#include "checkpoint/adapter.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "base/try.h"
#include "checkpoint/rename.h"

namespace danqing {
namespace {

constexpr const char* kPrefixes[] = {"base_model.model.", "transformer.", "model.diffusion_model.", "diffusion_model.",
                                     "lora_unet_"};
/// What a key ends with, and which half of a module that is.
struct Ending {
  const char* text;
  char part;
};
constexpr Ending kEndings[] = {{".lora_A.weight", 'a'},
                               {".lora_B.weight", 'b'},
                               {".lora_A.default.weight", 'a'},
                               {".lora_B.default.weight", 'b'},
                               {".lora_down.weight", 'a'},
                               {".lora_up.weight", 'b'},
                               {".alpha", 's'}};
constexpr const char* kOtherKinds[] = {"dora_scale", "hada_", "lokr_", ".diff", "oft_", "lora_mid", ".glora"};
constexpr const char* kThirds[] = {"to_q", "to_k", "to_v"};

std::string without_prefixes(std::string name) {
  for (bool again = true; again;) {
    again = false;
    for (const char* p : kPrefixes)
      if (name.starts_with(p)) name.erase(0, std::string_view(p).size()), again = true;
  }
  return name;
}

bool is_text_encoder(const std::string& key) {
  return key.starts_with("text_encoder") || key.starts_with("lora_te") || key.starts_with("text_model");
}

std::string underscored(std::string name) {
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

/// Which of the model's tensors a module's rows go to.
struct Target {
  const BoundTensor* tensor = nullptr;
  int64_t first_row = 0;       ///< of the tensor
  int64_t from = 0, rows = 0;  ///< of the module
};

class Matcher {
 public:
  Matcher(const BoundTensors& bound, const NameMap& names) : bound_(bound), rename_(names) {
    for (const BoundTensor& b : bound.tensors)
      if (b.stored && b.spec.name.ends_with(".weight")) {
        const std::string module = b.spec.name.substr(0, b.spec.name.size() - 7);
        by_module_[module] = &b;
        by_module_.try_emplace(underscored(module), &b);
      }
  }

  /// Empty: the model has no such module.
  std::vector<Target> find(const std::string& module, int64_t rows) const {
    std::string name = rename_(module + ".");
    name.pop_back();
    if (const BoundTensor* t = at(name)) return {{t, 0, 0, rows}};
    for (const char mark : {'.', '_'})
      if (auto list = thirds(name, rows, mark); !list.empty()) return list;
    return {};
  }

 private:
  const BoundTensor* at(const std::string& module) const {
    const auto it = by_module_.find(module);
    return it == by_module_.end() ? nullptr : it->second;
  }

  std::vector<Target> thirds(const std::string& name, int64_t rows, char mark) const {
    const size_t cut = name.rfind(std::string(1, mark) + (name.ends_with("qkv") ? "qkv" : "to_"));
    if (cut == std::string::npos) return {};
    const std::string head = name.substr(0, cut + 1), tail = name.substr(cut + 1);
    std::vector<Target> list;
    for (int64_t i = 0; i < 3; ++i) {
      if (tail == kThirds[i])
        if (const BoundTensor* t = at(head + "qkv")) return {{t, i * rows, 0, rows}};
      if (tail == "qkv" && rows % 3 == 0)
        if (const BoundTensor* t = at(head + kThirds[i])) list.push_back({t, 0, i * (rows / 3), rows / 3});
    }
    return list.size() == 3 ? list : std::vector<Target>();
  }

  const BoundTensors& bound_;
  Renamer rename_;
  std::map<std::string, const BoundTensor*> by_module_;
};

TensorDelta::Part part_of(const Adapter::Module& m, const Target& t, float weight) {
  const int64_t rank = m.a.size(0);
  TensorDelta::Part p{t.first_row, rank, m.a.data, {}};
  p.b.assign(m.b.data.begin() + t.from * rank, m.b.data.begin() + (t.from + t.rows) * rank);
  for (float& x : p.b) x *= weight * m.factor;
  return p;
}

}  // namespace

void TensorDelta::add(int64_t first, std::span<float> values) const {
  for (size_t done = 0; done < values.size();) {
    const int64_t at = first + static_cast<int64_t>(done), row = at / columns, from = at % columns;
    const auto n = static_cast<size_t>(std::min<int64_t>(columns - from, static_cast<int64_t>(values.size() - done)));
    for (const Part& p : parts) {
      const int64_t r = row - p.first_row;
      if (r < 0 || r >= static_cast<int64_t>(p.b.size()) / p.rank) continue;
      for (int64_t k = 0; k < p.rank; ++k) {
        const float factor = p.b[static_cast<size_t>(r * p.rank + k)];
        const float* a = p.a.data() + k * columns + from;
        for (size_t i = 0; i < n; ++i) values[done + i] += factor * a[i];
      }
    }
    done += n;
  }
}

Result<std::shared_ptr<const Adapter>> Adapter::open(const std::filesystem::path& file) {
  DQ_TRY(const std::shared_ptr<const TensorSource> source, TensorSource::open(file));
  struct Halves {
    const TensorInfo *a = nullptr, *b = nullptr, *alpha = nullptr;
  };
  std::map<std::string, Halves> found;
  for (const TensorInfo& t : source->tensors()) {
    if (is_text_encoder(t.name)) continue;  // these models' adapters change the denoiser; others are not applied
    for (const char* kind : kOtherKinds)
      if (t.name.find(kind) != std::string::npos)
        return bad_input("[lora] {}: expected a LoRA adapter, got {}: adapters of that kind are not supported",
                         file.string(), one_line(t.name, 100));
    const auto ending = std::find_if(std::begin(kEndings), std::end(kEndings),
                                     [&](const Ending& e) { return t.name.ends_with(e.text); });
    if (ending == std::end(kEndings))
      return bad_input("[lora] {}: expected lora_A, lora_B, lora_down, lora_up and alpha, got {}", file.string(),
                       one_line(t.name, 100));
    Halves& h = found[t.name.substr(0, t.name.size() - std::string_view(ending->text).size())];
    (ending->part == 'a' ? h.a : ending->part == 'b' ? h.b : h.alpha) = &t;
  }
  if (found.empty()) return bad_input("[lora] {}: expected an adapter of the denoiser, got none", file.string());
  std::shared_ptr<Adapter> adapter(new Adapter());
  adapter->file_ = file;
  for (const auto& [name, h] : found) {
    if (!h.a || !h.b)
      return bad_input("[lora] {}: {} has only one of its two halves", file.string(), one_line(name, 100));
    Module m{without_prefixes(name), {}, {}, 1};
    DQ_TRY(m.a, read_f32(*source, h.a->name));
    DQ_TRY(m.b, read_f32(*source, h.b->name));
    for (Tensor* t : {&m.a, &m.b})  // 1x1 kernels are matrices
      if (t->shape.size() == 4 && t->size(2) == 1 && t->size(3) == 1) t->shape.resize(2);
    if (m.a.shape.size() != 2 || m.b.shape.size() != 2 || m.a.size(0) != m.b.size(1) || m.a.count() == 0 ||
        m.b.count() == 0)
      return bad_input("[lora] {}: {} expected [rank, in] and [out, rank], got {} and {}", file.string(),
                       one_line(name, 100), to_string(m.a.shape), to_string(m.b.shape));
    if (h.alpha) {
      DQ_TRY(const Tensor alpha, read_f32(*source, h.alpha->name));
      if (alpha.count() != 1)
        return bad_input("[lora] {}: {}.alpha expected one number, got {}", file.string(), one_line(name, 100),
                         to_string(alpha.shape));
      m.factor = alpha.data[0] / static_cast<float>(m.a.size(0));
    }
    adapter->modules_.push_back(std::move(m));
  }
  return std::shared_ptr<const Adapter>(std::move(adapter));
}

Result<void> apply_adapters(BoundTensors& bound, std::span<const AdapterUse> adapters, const NameMap& names) {
  if (adapters.empty()) return {};
  const Matcher matcher(bound, names);
  std::map<std::string, std::shared_ptr<TensorDelta>> deltas;
  for (const AdapterUse& use : adapters)
    for (const Adapter::Module& m : use.adapter->modules()) {
      const std::string where = use.adapter->file().string();
      const std::vector<Target> targets = matcher.find(m.name, m.b.size(0));
      if (targets.empty())
        return bad_input("[lora] {}: the model has no {}; the adapter is for another one", where,
                         one_line(m.name, 100));
      for (const Target& t : targets) {
        const Shape& shape = t.tensor->spec.shape;
        const bool whole =
            t.first_row == 0 && t.rows == m.b.size(0) && t.tensor->spec.name.find("qkv") == std::string::npos;
        if (shape.size() != 2 || shape[1] != m.a.size(1) || t.first_row + t.rows > shape[0] ||
            (whole && t.rows != shape[0]))
          return bad_input("[lora] {}: {} expected to change {}, got [{}, {}]", where, one_line(m.name, 100),
                           to_string(shape), m.b.size(0), m.a.size(1));
        auto& delta = deltas[t.tensor->stored->name];
        if (!delta) delta = std::make_shared<TensorDelta>();
        delta->columns = shape[1];
        delta->parts.push_back(part_of(m, t, use.weight));
      }
    }
  const std::shared_ptr<const TensorSource> before = bound.source;  // the names are its
  bound.source = TensorSource::with_deltas(*before, {deltas.begin(), deltas.end()});
  for (BoundTensor& b : bound.tensors)
    if (b.stored) b.stored = bound.source->find(b.stored->name);
  return {};
}

}  // namespace danqing
