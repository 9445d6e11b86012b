// The normalizer of a tokenizer.json: none, NFC, or a sequence of such.
#pragma once
#include <string>
#include <string_view>

#include "base/json.h"

namespace danqing {

/// Canonical composition (Unicode annex 15) of valid UTF-8, in time n log n whatever the combining marks; marks that
/// are newer than Unicode 9 keep their place, as in the reference.
Result<std::string> to_nfc(std::string_view text);

class Normalizer {
 public:
  /// `j` may be null (no normalizer). Error: a normalizer of another kind.
  static Result<Normalizer> from_json(const Json* j, const std::string& where);
  bool changes_nothing() const { return !nfc_; }
  Result<std::string> apply(std::string_view text) const;

 private:
  bool nfc_ = false;
};

}  // namespace danqing
