#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <pcre2.h>

#include <algorithm>

#include "base/text.h"
#include "base/try.h"

namespace danqing {
namespace {

constexpr uint32_t kFirstLimit = 20000;   // ordinary matches need less; long runs escalate
constexpr uint64_t kBudget = 20'000'000;  // backtracking steps for failed attempts, plus kBudgetPerByte
constexpr uint64_t kBudgetPerByte = 64;
constexpr uint32_t kHeapKiB = 64 * 1024;
constexpr size_t kJitStack = 4u << 20;

std::string pcre2_message(int code) {
  PCRE2_UCHAR text[128] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

Result<std::shared_ptr<const Regex>> Regex::compile(const std::string& pattern, bool literal,
                                                    const std::string& where) {
  if (pattern.size() > 65536)
    return bad_input("[tokenizer] {}: expected a pattern of at most 65536 bytes, got {}", where, pattern.size());
  std::string translated = pattern;
  if (!literal) {
    DQ_TRY(translated, regex_from_oniguruma(pattern, where));
  }
  std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (!context) return fail(ErrorCode::failed, "[tokenizer] {}: out of memory for a regular expression", where);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  // Ruby's ^ and $ are line anchors always.
  const uint32_t options =
      literal ? PCRE2_UTF | PCRE2_LITERAL : PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  int code = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), options,
                                       &code, &offset, context.get());
  if (!compiled)
    return bad_input("[tokenizer] {}: not a usable regular expression ({} at byte {} of '{}')", where,
                     pcre2_message(code), offset, one_line(translated));
  std::shared_ptr<Regex> regex(new Regex);
  regex->code_ = compiled;
  regex->pattern_ = pattern.substr(0, 100);
  pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);  // without JIT the interpreter does the work
  return std::shared_ptr<const Regex>(std::move(regex));
}

Regex::~Regex() { pcre2_code_free(static_cast<pcre2_code*>(code_)); }

struct Regex::Matcher::State {
  const Regex* regex = nullptr;
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  uint64_t budget = 0;
  ~State() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

Regex::Matcher::Matcher(const Regex& regex, size_t text_bytes) : s_(std::make_unique<State>()) {
  s_->regex = &regex;
  s_->data = pcre2_match_data_create_from_pattern(static_cast<const pcre2_code*>(regex.code_), nullptr);
  s_->context = pcre2_match_context_create(nullptr);
  if (s_->context) pcre2_set_heap_limit(s_->context, kHeapKiB);
  s_->budget = kBudget + kBudgetPerByte * text_bytes;
}

Regex::Matcher::~Matcher() = default;

Result<bool> Regex::Matcher::find(std::string_view text, size_t from, Span& match) {
  if (!s_->data || !s_->context) return fail(ErrorCode::failed, "[tokenizer] out of memory for a regular expression");
  const auto* code = static_cast<const pcre2_code*>(s_->regex->code_);
  uint64_t limit = kFirstLimit;
  for (;;) {
    pcre2_set_match_limit(s_->context, static_cast<uint32_t>(limit));
    const int rc = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, PCRE2_NO_UTF_CHECK,
                               s_->data, s_->context);
    if (rc == PCRE2_ERROR_NOMATCH) return false;
    if (rc >= 0) {
      const PCRE2_SIZE* v = pcre2_get_ovector_pointer(s_->data);
      match = {v[0], std::max(v[0], v[1])};  // \K in a look-ahead can put the start behind the end
      return true;
    }
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT && !s_->stack) {
      s_->stack = pcre2_jit_stack_create(32 * 1024, kJitStack, nullptr);
      if (s_->stack) {
        pcre2_jit_stack_assign(s_->context, nullptr, s_->stack);
        continue;
      }
    }
    if (rc == PCRE2_ERROR_MATCHLIMIT && s_->budget > 0) {
      s_->budget -= std::min(s_->budget, limit);
      limit = std::min<uint64_t>(limit * 8, std::max<uint64_t>(s_->budget, 1));
      if (limit > UINT32_MAX) limit = UINT32_MAX;
      if (s_->budget > 0) continue;
    }
    return bad_input("[tokenizer] the regular expression '{}' needs too much work on this text ({})",
                     one_line(s_->regex->pattern_), pcre2_message(rc));
  }
}

}  // namespace danqing
