// Early return on errors: DQ_TRY(auto x, f()) binds the value or returns the Error; DQ_CHECK(f()) for Result<void>.
#pragma once
#include <fmt/format.h>

#include "danqing/result.h"

#define DQ_CAT2(a, b) a##b
#define DQ_CAT(a, b) DQ_CAT2(a, b)
#define DQ_TRY_IMPL(tmp, decl, expr)       \
  auto tmp = (expr);                       \
  if (!tmp) return std::move(tmp).error(); \
  decl = std::move(tmp).value()
#define DQ_TRY(decl, ...) DQ_TRY_IMPL(DQ_CAT(dq_try_, __COUNTER__), decl, (__VA_ARGS__))
#define DQ_CHECK(...)                                                                 \
  do {                                                                                \
    if (auto dq_check = (__VA_ARGS__); !dq_check) return std::move(dq_check).error(); \
  } while (0)

namespace danqing {

/// Builds an Error with a formatted message: `return fail(ErrorCode::usage, "[size] expected ..., got {}", x);`
template <class... A>
Error fail(ErrorCode code, fmt::format_string<A...> f, A&&... args) {
  return Error{code, fmt::format(f, std::forward<A>(args)...)};
}
template <class... A>
Error bad_input(fmt::format_string<A...> f, A&&... args) {
  return Error{ErrorCode::bad_input, fmt::format(f, std::forward<A>(args)...)};
}
template <class... A>
Error usage_error(fmt::format_string<A...> f, A&&... args) {
  return Error{ErrorCode::usage, fmt::format(f, std::forward<A>(args)...)};
}

}  // namespace danqing
