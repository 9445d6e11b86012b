// Bodies of multipart/form-data (RFC 7578), as HTML forms and OpenAI's clients send files.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace danqing::server {

struct FormPart {
  std::string name;
  bool is_file = false;   ///< it came with a file name
  std::string_view data;  ///< within the body
};

/// The boundary of a Content-Type; empty: it is another type, or has none.
std::string form_boundary(const std::string& content_type);
/// Nothing for a body that is not such a form: parts without a name, no end, more than 64 parts or headers beyond 8
/// KiB.
std::optional<std::vector<FormPart>> parse_form(std::string_view body, const std::string& boundary);

}  // namespace danqing::server
