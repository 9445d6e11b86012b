// Known errors of drivers and libraries, from a table kept as data (data/doctor/errors.json): what a pasted log means.
#pragma once
#include <string_view>
#include <vector>

#include "doctor/text.h"

namespace danqing::doctor {

struct KnownError {
  std::string id;
  /// The error is meant when, for one of the lists, all texts of it are somewhere in the log. Lower case.
  std::vector<std::vector<std::string>> match;
  Text title, cause;
  std::vector<Text> steps;
  std::string source;  ///< where it was described
};
const std::vector<KnownError>& known_errors();

struct Explanation {
  const KnownError* error = nullptr;
  std::string line;  ///< of the log, where it was recognised; safe to print
};
/// Best first, at most `most`: more matched text is more specific. Looks at the first 4 MiB.
std::vector<Explanation> explain(std::string_view log, size_t most = 3);

/// For errors of a device or its driver: "likely cause: ... (danqing doctor --explain ID)"; empty for all others.
std::string likely_cause(const Error& error, Language language = Language::english);

}  // namespace danqing::doctor
