// Checks and explanations as text and JSON.
#pragma once
#include "base/json.h"
#include "doctor/check.h"
#include "doctor/explain.h"

namespace danqing::doctor {

std::string report_text(const std::vector<Check>& checks, Language language);
/// Both languages.
Json to_json(const std::vector<Check>& checks);
/// `found` empty: says so.
std::string report_text(const std::vector<Explanation>& found, Language language);
Json to_json(const std::vector<Explanation>& found);

}  // namespace danqing::doctor
