// JSON text exactly as Python's json.dumps(ensure_ascii=False) writes it: models were trained on that spelling.
#pragma once
#include <string>
#include <string_view>

namespace danqing {

/// `text` in quotes: quotes, backslashes and control characters escaped, everything else as it is.
void append_json_string(std::string& out, std::string_view text);

}  // namespace danqing
