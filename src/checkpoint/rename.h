// Foreign names to ours, by a NameMap's aliases.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor_spec.h"

namespace danqing {

/// Aliases are replaced in one pass from the left, the longest that fits at a place first; a match begins at a part of
/// the name ("quant_conv." does not match inside "post_quant_conv.").
class Renamer {
 public:
  explicit Renamer(const NameMap& names) : aliases_(names.aliases) {
    std::stable_sort(aliases_.begin(), aliases_.end(),
                     [](const auto& a, const auto& b) { return a.from.size() > b.from.size(); });
  }
  std::string operator()(std::string_view name) const {
    std::string out;
    for (size_t i = 0; i < name.size();) {
      const NameMap::Alias* hit = i == 0 || name[i - 1] == '.' || name[i] == '.' ? match(name.substr(i)) : nullptr;
      if (hit) {
        out += hit->to;
        i += hit->from.size();
      } else {
        out += name[i++];
      }
    }
    return out;
  }

 private:
  const NameMap::Alias* match(std::string_view rest) const {
    for (const NameMap::Alias& a : aliases_)
      if (!a.from.empty() && rest.starts_with(a.from)) return &a;
    return nullptr;
  }
  std::vector<NameMap::Alias> aliases_;
};

}  // namespace danqing
