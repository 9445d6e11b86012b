// GET over HTTP(S): redirects, ranges, credentials that stay with their host, a limit on the rate, patience.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "danqing/result.h"

namespace danqing::fetch {

/// Bytes begin ... end - 1 of a file.
struct ByteRange {
  uint64_t begin = 0, end = 0;
  uint64_t size() const { return end - begin; }
};

/// Headers for one origin ("https://host:port") and for no other, whatever redirects say. Over plain http they are sent
/// to this machine alone.
struct Credential {
  std::string origin;
  std::vector<std::string> headers;
};

struct HttpSettings {
  std::vector<Credential> credentials;
  double bytes_per_second = 0;  ///< of all connections together; 0: no limit
  int connections = 4;          ///< how many are used at once; sizes the buffers under a limit
  int retries = 6;              ///< tries in a row that bring nothing before it is given up
  double retry_seconds = 1;     ///< before the second try; doubles up to 60 s
  double stall_seconds = 60;    ///< without a byte: the connection is taken for dead
  std::function<bool()> cancelled;
  std::function<void(const std::string&)> say;  ///< why it waits; may be called from any thread
};

struct HttpHead {
  int status = 0;
  std::string etag, last_modified, content_type, link;
  std::optional<uint64_t> length;        ///< Content-Length
  std::optional<ByteRange> range;        ///< Content-Range
  std::optional<uint64_t> total;         ///< size of the whole file, from Content-Range
  std::optional<double> retry_after;     ///< seconds
  std::string linked_etag, linked_size;  ///< what a hub says of the file behind its redirect (X-Linked-...)
};

struct HttpError {
  Error error;
  bool transient = false;  ///< another try may succeed
  int status = 0;          ///< 0: no answer
  std::optional<double> retry_after;
};

struct HttpAnswer {
  HttpHead head;
  std::optional<HttpError> error;
};

struct HttpRequest {
  std::string url;
  std::optional<ByteRange> range;
  std::string if_range;  ///< a strong ETag
};

/// The final answer's head, before its body; false: the body is not wanted. Called for 200 and 206.
using OnHead = std::function<Result<bool>(const HttpHead&)>;
using OnBody = std::function<Result<void>(std::span<const std::byte>)>;

/// Thread-safe; keeps connections open between requests. Proxies as libcurl takes them from the environment.
class Http {
 public:
  explicit Http(HttpSettings settings);
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  /// One GET. Every status other than 200 and 206 is an error with a message of its own: 401, 403, 404 and the like are
  /// bad_input and final; 408, 425, 429, 5xx and broken connections transient. Errors of the callbacks are final.
  HttpAnswer get(const HttpRequest& request, const OnHead& on_head, const OnBody& on_body);
  /// A whole small answer, tried again where that helps. Error (bad_input): a web page where JSON was asked for, more
  /// than `limit` bytes.
  Result<std::string> text(const std::string& url, size_t limit, HttpHead* head = nullptr);
  const HttpSettings& settings() const { return settings_; }
  bool cancelled() const { return settings_.cancelled && settings_.cancelled(); }
  void say(const std::string& line) const {
    if (settings_.say) settings_.say(line);
  }

 private:
  struct Connection;
  std::unique_ptr<Connection> take();
  void give(std::unique_ptr<Connection> connection);
  HttpAnswer once(Connection& c, const HttpRequest& request, const std::string& url, const OnHead& on_head,
                  const OnBody& on_body, std::string& redirect);
  std::vector<std::string> headers_for(const std::string& url) const;
  Result<void> throttle(size_t bytes);

  HttpSettings settings_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Connection>> free_;
  std::chrono::steady_clock::time_point next_{};  ///< when the limit lets the next byte through
};

/// Counts the tries of one piece of work and waits between them.
class Patience {
 public:
  explicit Patience(const Http& http) : http_(http) {}
  /// Something arrived: counting begins anew.
  void progress() { tries_ = 0; }
  /// After a failed try: waits and returns nothing, or the Error that ends the work.
  Result<void> after(const HttpError& error);

 private:
  const Http& http_;
  int tries_ = 0;
};

/// One line of a head into it.
void read_header_line(std::string_view line, HttpHead& head);
/// What a status other than 200 and 206 means to the user. `with_token`: one was sent.
HttpError status_error(int status, const std::string& url, bool with_token);
/// Waits, a cancel ends it early with an Error.
Result<void> wait_seconds(const Http& http, double seconds);
/// "https://host:port" in lower case with the port always there; empty when it is no http(s) URL.
std::string origin_of(const std::string& url);
/// For messages and files: without user, password, query and fragment.
std::string shown_url(const std::string& url);
/// Percent-encodes all but letters, digits and -._~ (and '/' where `keep_slash`).
std::string url_encode(std::string_view text, bool keep_slash);
std::string url_decode(std::string_view text);

}  // namespace danqing::fetch
