#include <algorithm>
#include <unordered_map>

#include "base/text.h"
#include "base/try.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/rename.h"
#include "checkpoint/tensor_spec.h"

namespace danqing {
namespace {

bool starts_with(std::string_view s, std::string_view head) { return s.substr(0, head.size()) == head; }

// [O, C, 1, 1] and [O, C] are the same numbers in the same order; so are [1, C] and [C].
bool same_shape(const Shape& a, const Shape& b) {
  const auto squeezed = [](Shape s) {
    if (s.size() == 4 && s[2] == 1 && s[3] == 1) s.resize(2);
    if (s.size() == 2 && s[0] == 1) s.erase(s.begin());
    return s;
  };
  return squeezed(a) == squeezed(b);
}

struct Names {
  std::unordered_map<std::string_view, size_t> specs;  // our name -> index
  std::vector<const TensorInfo*> stored;               // by spec
  std::string prefix;
};

// The prefix under which most specs are found; of equals, the first. Pairs of prefixes are tried when no single one
// fits all ("text_encoder." of a single-file checkpoint before "model." of the text encoder's own file).
std::string best_prefix(const TensorSource& source, const Names& ours, const std::vector<std::string>& prefixes,
                        const Renamer& rename) {
  std::string best = prefixes.empty() ? "" : prefixes.front();
  size_t most = 0;
  const auto consider = [&](const std::string& prefix) {
    size_t found = 0;
    for (const TensorInfo& t : source.tensors())
      if (starts_with(t.name, prefix))
        found += ours.specs.count(rename(std::string_view(t.name).substr(prefix.size())));
    if (found > most) best = prefix, most = found;
  };
  for (const std::string& p : prefixes) consider(p);
  if (most < ours.specs.size())
    for (const std::string& p : prefixes)
      for (const std::string& q : prefixes)
        if (!p.empty() && !q.empty()) consider(p + q);
  return best;
}

Result<void> assign(Names& ours, const TensorInfo& t, size_t spec, const TensorSource& source) {
  const TensorInfo*& slot = ours.stored[spec];
  if (slot)
    return bad_input(
        "[checkpoint] {}: expected one tensor for '{}', got '{}' and '{}'", source.path().string(),
        std::string(
            std::find_if(ours.specs.begin(), ours.specs.end(), [&](const auto& s) { return s.second == spec; })->first),
        one_line(slot->name), one_line(t.name));
  slot = &t;
  return {};
}

Error missing(const TensorSource& source, const std::vector<TensorSpec>& specs, const Names& ours,
              const std::string& model_name) {
  std::vector<const TensorSpec*> absent;
  for (size_t i = 0; i < specs.size(); ++i)
    if (!specs[i].optional && !ours.stored[i]) absent.push_back(&specs[i]);
  std::string hint;
  const auto kind = recognise(source);
  if (absent.size() * 2 > specs.size())
    hint = fmt::format("; the file is {}", kind ? kind->description : "of no kind known here");
  return bad_input("[checkpoint] {}: {} expected tensor '{}{}' {}, got none{}{}", source.path().string(), model_name,
                   ours.prefix, absent[0]->name, to_string(absent[0]->shape),
                   absent.size() > 1 ? fmt::format(" ({} more are missing)", absent.size() - 1) : "", hint);
}

}  // namespace

const BoundTensor* BoundTensors::find(std::string_view name) const {
  const auto it =
      std::find_if(tensors.begin(), tensors.end(), [&](const BoundTensor& t) { return t.spec.name == name; });
  return it == tensors.end() ? nullptr : &*it;
}

Result<BoundTensors> bind(std::shared_ptr<const TensorSource> source, const std::vector<TensorSpec>& specs,
                          const NameMap& names, const std::string& model_name) {
  const Renamer rename(names);
  Names ours;
  ours.stored.assign(specs.size(), nullptr);
  for (size_t i = 0; i < specs.size(); ++i) ours.specs.emplace(specs[i].name, i);
  ours.prefix = best_prefix(*source, ours, names.prefixes, rename);

  std::vector<const TensorInfo*> others;  // outside the prefix
  BoundTensors bound{.source = source};
  for (const TensorInfo& t : source->tensors()) {
    if (!starts_with(t.name, ours.prefix)) {
      others.push_back(&t);
      continue;
    }
    const std::string name = rename(std::string_view(t.name).substr(ours.prefix.size()));
    if (const auto it = ours.specs.find(name); it != ours.specs.end()) {
      DQ_CHECK(assign(ours, t, it->second, *source));
    } else if (std::none_of(names.ignored.begin(), names.ignored.end(),
                            [&](const std::string& i) { return starts_with(name, i) || starts_with(t.name, i); })) {
      bound.unused.push_back(t.name);
    }
  }
  // A head may stand outside the prefix of the body ("model.layers.0...", "lm_head.weight").
  const std::vector<const TensorInfo*> inside = ours.stored;
  for (const TensorInfo* t : others)
    if (const auto it = ours.specs.find(rename(t->name)); it != ours.specs.end() && !inside[it->second])
      DQ_CHECK(assign(ours, *t, it->second, *source));

  for (size_t i = 0; i < specs.size(); ++i) {
    const TensorInfo* stored = ours.stored[i];
    if (!stored && !specs[i].optional) return missing(*source, specs, ours, model_name);
    if (stored && !same_shape(stored->shape, specs[i].shape))
      return bad_input("[checkpoint] {}: {} tensor '{}' expected shape {}, got {}",
                       source->files().empty() ? source->path().string() : source->files()[stored->file].string(),
                       model_name, one_line(stored->name), to_string(specs[i].shape), to_string(stored->shape));
    bound.tensors.push_back({specs[i], stored});
  }
  return bound;
}

}  // namespace danqing
