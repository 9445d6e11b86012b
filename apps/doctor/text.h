// Text for people, in the two languages that Danqing speaks.
#pragma once
#include <string>
#include <string_view>

#include "danqing/result.h"

namespace danqing::doctor {

enum class Language { english, chinese };

struct Text {
  std::string en, zh;
  const std::string& in(Language l) const { return l == Language::chinese ? zh : en; }
  bool empty() const { return en.empty(); }
};

/// "en", "zh", or "" for what LC_ALL, LC_MESSAGES or LANG say. Usage error for another word.
Result<Language> parse_language(std::string_view word);

}  // namespace danqing::doctor
