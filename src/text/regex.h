// Regular expressions of tokenizer files: written for Oniguruma (Ruby syntax), run by PCRE2 with Unicode properties.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "danqing/result.h"

namespace danqing {

/// Bytes [begin, end) of some text.
struct Span {
  size_t begin = 0, end = 0;
  size_t size() const { return end - begin; }
};

/// The pattern in PCRE2's syntax with the meaning that Oniguruma gives it (white space, word and digit classes,
/// scripts,
/// `(?m)`, `{,n}`). Error: constructs whose meaning differs and that have no translation. `where` names the source.
Result<std::string> regex_from_oniguruma(std::string_view pattern, const std::string& where);

/// A compiled pattern. Immutable: share it between threads, give each thread its own Matcher.
class Regex {
 public:
  /// `literal`: the pattern is plain text to look for.
  static Result<std::shared_ptr<const Regex>> compile(const std::string& pattern, bool literal,
                                                      const std::string& where);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  /// Searches with a bounded amount of backtracking over its whole life: linear in the text plus a constant.
  class Matcher {
   public:
    Matcher(const Regex& regex, size_t text_bytes);
    ~Matcher();
    Matcher(const Matcher&) = delete;
    Matcher& operator=(const Matcher&) = delete;
    /// The first match in `text` (valid UTF-8) at or after `from`; false if there is none.
    /// Error: PCRE2 gave up (catastrophic backtracking, memory).
    Result<bool> find(std::string_view text, size_t from, Span& match);

   private:
    struct State;
    std::unique_ptr<State> s_;
  };

 private:
  Regex() = default;
  void* code_ = nullptr;  // pcre2_code*, kept out of this header
  std::string pattern_;
};

}  // namespace danqing
