#include "fetch/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <thread>

#include "base/text.h"
#include "base/try.h"

namespace danqing::fetch {
namespace {

constexpr int kMaxRedirects = 10;
constexpr double kLongestWait = 600;  // seconds; a server that asks for more is left alone

bool is_local(const std::string& origin) {
  for (const char* host : {"http://127.0.0.1:", "http://localhost:", "http://[::1]:"})
    if (origin.rfind(host, 0) == 0) return true;
  return false;
}

HttpError final_error(Error error) { return {std::move(error), false, 0, {}}; }

/// One transfer as curl's callbacks see it.
struct Transfer {
  Http* http = nullptr;
  const OnHead* on_head = nullptr;
  const OnBody* on_body = nullptr;
  CURL* curl = nullptr;
  HttpHead head;
  Result<void> (*throttle)(Http&, size_t) = nullptr;
  std::optional<Error> error;
  bool seen = false, stopped = false;
  size_t unwanted = 0;

  size_t stop() {
    stopped = true;
    return 0;
  }
};

/// Redirects and errors have bodies too: short ones are read so that the connection can be used again.
constexpr size_t kUnwantedBody = 65536;
bool wanted(int status) { return status == 200 || status == 206; }

size_t on_header(char* data, size_t size, size_t count, void* to) {
  auto& t = *static_cast<Transfer*>(to);
  const std::string_view line(data, size * count);
  if (line.rfind("HTTP/", 0) == 0) t.head = {};  // a proxy's or an interim answer came first
  read_header_line(line, t.head);
  return size * count;
}

void take_status(Transfer& t) {
  long status = 0;
  curl_easy_getinfo(t.curl, CURLINFO_RESPONSE_CODE, &status);
  t.head.status = static_cast<int>(status);
  curl_off_t after = 0;
  if (curl_easy_getinfo(t.curl, CURLINFO_RETRY_AFTER, &after) == CURLE_OK && after > 0)
    t.head.retry_after = static_cast<double>(after);
}

bool begin(Transfer& t) {
  if (t.seen) return !t.stopped;
  t.seen = true;
  take_status(t);
  if (!wanted(t.head.status)) return true;
  const auto go = (*t.on_head)(t.head);
  if (!go) t.error = go.error();
  return (go && *go) || t.stop() != 0;
}

size_t on_data(char* data, size_t size, size_t count, void* to) {
  auto& t = *static_cast<Transfer*>(to);
  const size_t n = size * count;
  if (!begin(t)) return n == 0 ? 1 : 0;
  if (!wanted(t.head.status)) return (t.unwanted += n) < kUnwantedBody ? n : t.stop();
  Result<void> done = (*t.on_body)(std::as_bytes(std::span(data, n)));
  if (done) done = t.throttle(*t.http, n);
  if (done) return n;
  t.error = done.error();
  return t.stop();
}

int on_progress(void* to, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Transfer*>(to)->http->cancelled() ? 1 : 0;
}

Error cancelled_error() {
  return fail(ErrorCode::cancelled, "[pull] cancelled; what came so far is kept, the same command goes on from there");
}

HttpError connection_error(CURLcode code, const char* detail, const std::string& url) {
  HttpError e;
  const bool final_one = code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT ||
                         code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
                         code == CURLE_COULDNT_RESOLVE_PROXY;
  e.transient = !final_one;
  e.error =
      fail(code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL ? ErrorCode::usage : ErrorCode::failed,
           "[pull] {}: {}", shown_url(url), one_line(detail && *detail ? detail : curl_easy_strerror(code)));
  return e;
}

}  // namespace

struct Http::Connection {
  CURL* curl = curl_easy_init();
  char message[CURL_ERROR_SIZE] = {};
  ~Connection() { curl_easy_cleanup(curl); }
};

Http::Http(HttpSettings settings) : settings_(std::move(settings)) { curl_global_init(CURL_GLOBAL_DEFAULT); }
Http::~Http() = default;

std::unique_ptr<Http::Connection> Http::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return std::make_unique<Connection>();
  auto c = std::move(free_.back());
  free_.pop_back();
  return c;
}

void Http::give(std::unique_ptr<Connection> c) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(c));
}

std::vector<std::string> Http::headers_for(const std::string& url) const {
  const std::string origin = origin_of(url);
  if (origin.rfind("https://", 0) != 0 && !is_local(origin)) return {};
  for (const Credential& c : settings_.credentials)
    if (c.origin == origin) return c.headers;
  return {};
}

Result<void> wait_seconds(const Http& http, double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    if (http.cancelled()) return cancelled_error();
    const auto left = until - std::chrono::steady_clock::now();
    if (left <= std::chrono::seconds(0)) return {};
    std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(left, std::chrono::milliseconds(100)));
  }
}

Result<void> Http::throttle(size_t bytes) {
  if (settings_.bytes_per_second <= 0) return {};
  double wait = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    next_ = std::max(next_, now) +
            std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                std::chrono::duration<double>(static_cast<double>(bytes) / settings_.bytes_per_second));
    wait = std::chrono::duration<double>(next_ - now).count();
  }
  return wait_seconds(*this, wait);
}

HttpAnswer Http::once(Connection& c, const HttpRequest& request, const std::string& url, const OnHead& on_head,
                      const OnBody& on_body, std::string& redirect) {
  Transfer t{.http = this, .on_head = &on_head, .on_body = &on_body, .curl = c.curl};
  t.throttle = [](Http& http, size_t n) { return http.throttle(n); };
  curl_easy_reset(c.curl);
  c.message[0] = '\0';
  const std::vector<std::string> secrets = headers_for(url);
  curl_slist* list = nullptr;
  for (const std::string& h : secrets) list = curl_slist_append(list, h.c_str());
  if (request.range && !request.if_range.empty())
    list = curl_slist_append(list, ("If-Range: " + request.if_range).c_str());
  const std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(list, curl_slist_free_all);
  const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(c.curl, option, value); };
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_USERAGENT, "danqing/" DANQING_VERSION);
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_ERRORBUFFER, c.message);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_HEADERFUNCTION, on_header);
  set(CURLOPT_HEADERDATA, &t);
  set(CURLOPT_WRITEFUNCTION, on_data);
  set(CURLOPT_WRITEDATA, &t);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, on_progress);
  set(CURLOPT_XFERINFODATA, &t);
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(std::min(30.0, settings_.stall_seconds) * 1000));
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, std::max(1L, static_cast<long>(settings_.stall_seconds)));
  // A quarter of a second's worth under a limit, so that connections take turns smoothly.
  double buffer = 512 * 1024;
  if (settings_.bytes_per_second > 0)
    buffer = std::clamp(settings_.bytes_per_second / settings_.connections / 4, 1024.0, buffer);
  set(CURLOPT_BUFFERSIZE, static_cast<long>(buffer));
  std::string range;
  if (request.range) {
    range = fmt::format("{}-{}", request.range->begin, request.range->end - 1);
    set(CURLOPT_RANGE, range.c_str());
  }
  const CURLcode code = curl_easy_perform(c.curl);
  if (!t.seen && code == CURLE_OK) begin(t);  // an empty body
  if (t.head.status == 0) take_status(t);
  HttpAnswer answer{t.head, {}};
  if (cancelled()) {
    answer.error = final_error(cancelled_error());
  } else if (t.error) {
    answer.error = final_error(*t.error);
  } else if (t.seen && t.head.status >= 300 && t.head.status < 400) {
    char* target = nullptr;
    curl_easy_getinfo(c.curl, CURLINFO_REDIRECT_URL, &target);
    if (target) redirect = target;
    if (redirect.empty()) answer.error = status_error(t.head.status, url, false);
  } else if (t.seen && !wanted(t.head.status)) {
    answer.error = status_error(t.head.status, url, !secrets.empty());
    answer.error->retry_after = t.head.retry_after;
  } else if (code != CURLE_OK && !(t.stopped && code == CURLE_WRITE_ERROR)) {
    answer.error = connection_error(code, c.message, url);
  }
  return answer;
}

HttpAnswer Http::get(const HttpRequest& request, const OnHead& on_head, const OnBody& on_body) {
  auto c = take();
  std::string url = request.url, linked_etag, linked_size;
  HttpAnswer answer;
  for (int hop = 0;; ++hop) {
    std::string redirect;
    answer = once(*c, request, url, on_head, on_body, redirect);
    if (linked_etag.empty()) linked_etag = answer.head.linked_etag, linked_size = answer.head.linked_size;
    if (answer.error || redirect.empty()) break;
    const std::string from = origin_of(url), to = origin_of(redirect);
    if (to.empty() || (from.rfind("https://", 0) == 0 && to.rfind("https://", 0) != 0)) {
      answer.error = final_error(
          bad_input("[pull] {}: redirects to {}, which is not followed", shown_url(request.url), shown_url(redirect)));
      break;
    }
    if (hop == kMaxRedirects) {
      answer.error = final_error(
          bad_input("[pull] {}: expected at most {} redirects, got more", shown_url(request.url), kMaxRedirects));
      break;
    }
    url = redirect;
  }
  answer.head.linked_etag = linked_etag;
  answer.head.linked_size = linked_size;
  give(std::move(c));
  return answer;
}

Result<std::string> Http::text(const std::string& url, size_t limit, HttpHead* head) {
  Patience patience(*this);
  for (;;) {
    std::string out;
    const HttpAnswer a = get(
        {.url = url, .range = {}, .if_range = {}},
        [&](const HttpHead& h) -> Result<bool> {
          if (h.content_type.rfind("text/html", 0) == 0)
            return bad_input(
                "[pull] {}: expected JSON, got a web page; is the address right, or does a login page of "
                "the network answer in its place?",
                shown_url(url));
          return true;
        },
        [&](std::span<const std::byte> bytes) -> Result<void> {
          if (out.size() + bytes.size() > limit)
            return bad_input("[pull] {}: expected at most {} bytes, got more", shown_url(url), limit);
          out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          return {};
        });
    if (!a.error) {
      if (head) *head = a.head;
      return out;
    }
    DQ_CHECK(patience.after(*a.error));
  }
}

Result<void> Patience::after(const HttpError& e) {
  if (!e.transient) return e.error;
  const HttpSettings& s = http_.settings();
  if (++tries_ > s.retries)
    return s.retries == 0 ? e.error : fail(e.error.code, "{}; given up after {} tries", e.error.message, tries_);
  double wait = std::min(60.0, s.retry_seconds * static_cast<double>(uint64_t{1} << std::min(tries_ - 1, 10)));
  if (e.retry_after && *e.retry_after > kLongestWait)
    return fail(ErrorCode::failed, "{}; it asks to come back in {:.0f} s: run the same command then", e.error.message,
                *e.retry_after);
  if (e.retry_after) wait = std::max(wait, *e.retry_after);
  http_.say(fmt::format("{}; again in {:.3g} s", e.error.message, wait));
  return wait_seconds(http_, wait);
}

}  // namespace danqing::fetch
