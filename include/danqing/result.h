// Errors as values: every fallible call of Danqing returns Result<T>; nothing throws to the caller.
#pragma once
#include <string>
#include <utility>
#include <variant>

namespace danqing {

/// What kind of failure it is; the numbers are the program's exit codes.
enum class ErrorCode {
  failed = 1,        ///< anything that is nobody's fault in particular (disk full, a bug)
  usage = 2,         ///< the request is wrong: a flag, a size, a prompt
  bad_input = 3,     ///< a model or another input file is missing, damaged or of the wrong kind
  does_not_fit = 4,  ///< the memory of the device or the host is too small for the job
  device_lost = 5,   ///< the device or its driver failed
  cancelled = 130,   ///< the caller asked to stop
};

/// One line for a person: `[stage] expected ..., got ...`, naming the file, tensor or field and what to do.
struct Error {
  ErrorCode code = ErrorCode::failed;
  std::string message;
};

/// Either a value or an Error. Check with `if (!r)`, then read `r.error()` or `*r`.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : v_(std::in_place_index<1>, std::move(error)) {}
  bool ok() const { return v_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<0>(v_); }
  const T& value() const& { return std::get<0>(v_); }
  T&& value() && { return std::get<0>(std::move(v_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const& { return std::get<1>(v_); }
  Error&& error() && { return std::get<1>(std::move(v_)); }

 private:
  std::variant<T, Error> v_;
};

/// Result without a value: default-constructed means success.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : failed_(true), error_(std::move(error)) {}
  bool ok() const { return !failed_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const& { return error_; }
  Error&& error() && { return std::move(error_); }

 private:
  bool failed_ = false;
  Error error_;
};

}  // namespace danqing
