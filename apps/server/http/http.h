// What the server knows of HTTP: a request, an answer, and the exchange between them. Only http_server.cpp knows
// sockets.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace danqing::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Caller {
  std::string name;   ///< of the API key; empty where the server has no keys
  bool admin = true;  ///< sees and cancels the jobs of all
};

struct Request {
  std::string method, path;  ///< path: percent-decoded, without the query
  std::map<std::string, std::string> query;
  std::map<std::string, std::string> params;   ///< of the route's pattern
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body, remote;
  std::string trace_id;  ///< 32 hex digits, the client's (traceparent) or our own
  Caller caller;
  std::string header(const std::string& lower_name) const {
    const auto it = headers.find(lower_name);
    return it == headers.end() ? "" : it->second;
  }
};

struct Response {
  int status = 200;
  std::string content_type, body;
  Headers headers = {};
};

/// One request being answered. Every function may be called from any thread and returns at once.
/// An exchange that is dropped without an answer answers 500.
class Exchange {
 public:
  virtual ~Exchange() = default;
  Request request;
  /// Added to every answer (security, CORS); set before the handler runs.
  Headers common_headers;
  /// Called with the status when the answer is complete (or the client is gone: status 499).
  std::function<void(int status)> on_answered;

  virtual void respond(Response response) = 0;
  /// Starts an answer of unknown length.
  virtual void begin_stream(int status, const std::string& content_type, const Headers& headers) = 0;
  /// `droppable`: left out when a slow reader has not taken what came before.
  virtual void write(std::string data, bool droppable) = 0;
  virtual void finish() = 0;
  /// The client went away before the answer was complete.
  virtual bool closed() const = 0;
  /// `f` runs once when the client goes away before the answer is complete; at once if it has gone already.
  virtual void on_closed(std::function<void()> f) = 0;
};
using ExchangePtr = std::shared_ptr<Exchange>;

std::string_view reason_phrase(int status);
/// "%41+b" -> "A+b"; false for a broken escape or a NUL.
bool percent_decode(std::string_view text, std::string& out, bool plus_is_space);
/// Splits target into path and query; false if malformed.
bool parse_target(std::string_view target, Request& request);
std::string base64(std::string_view bytes);
/// False for anything that is not base64 (white space is skipped, a data URL's head is accepted).
bool base64_decode(std::string_view text, std::string& out);

}  // namespace danqing::server
