#include "server/config/toml.h"

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <sstream>

#include "base/try.h"

namespace danqing::server {

Result<Json> parse_toml(const std::string& text, const std::string& where) {
  const toml::parse_result result = toml::parse(text, where);
  if (!result)
    return bad_input("[config] {}:{}: {}", where, result.error().source().begin.line,
                     std::string(result.error().description()));
  std::ostringstream out;
  out << toml::json_formatter{result.table()};
  return parse_json(out.str(), where);
}

}  // namespace danqing::server
