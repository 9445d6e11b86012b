#include "server/http/http_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "base/try.h"

namespace danqing::server {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = net::ip::tcp;
using Code = boost::system::error_code;

constexpr size_t kDropAbove = 256u << 10;   // bytes waiting for a reader from which on previews are left out
constexpr size_t kCloseAbove = 256u << 20;  // a reader that far behind is not coming back

std::string header_text(std::string_view text) {
  std::string safe;  // nothing that came from outside may start a header of its own
  for (const char c : text)
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) safe += c;
  return safe;
}

class Session;

/// Hub of everything that lives on the I/O thread.
struct Io {
  net::io_context context{1};
  HttpLimits limits;
  Accept accept;
  std::set<std::shared_ptr<Session>> sessions;
  std::atomic<int> count{0};
};

class ExchangeImpl;

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Io& io, tcp::socket socket) : io_(io), stream_(std::move(socket)) {
    Code ignored;
    stream_.socket().set_option(tcp::no_delay(true), ignored);
    stream_.socket().set_option(net::socket_base::keep_alive(true), ignored);
    const auto peer = stream_.socket().remote_endpoint(ignored);
    if (!ignored) remote_ = peer.address().to_string();
  }
  void read();
  void close();
  void refuse(int status, const char* message);
  // From exchanges, on the I/O thread; `serial` tells a late call from one of the present request.
  void send(uint64_t serial, std::string data, bool last, bool droppable);
  bool keep_alive() const { return keep_alive_; }
  bool is_head() const { return head_; }
  unsigned version() const { return version_; }
  Io& io() { return io_; }

 private:
  void on_head(Code ec);
  void on_request(Code ec);
  void dispatch();
  void watch(uint64_t serial);
  void write_some();
  void gone();
  void linger();
  void answered();

  Io& io_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::string remote_;
  std::weak_ptr<ExchangeImpl> exchange_;
  uint64_t serial_ = 0;
  std::deque<std::string> out_;
  size_t out_bytes_ = 0, sent_ = 0;
  bool keep_alive_ = true, head_ = false, writing_ = false, last_ = false, closed_ = false;
  unsigned version_ = 11;
  int lingered_ = 0;
  char waste_[4096];
};

class ExchangeImpl final : public Exchange, public std::enable_shared_from_this<ExchangeImpl> {
 public:
  ExchangeImpl(std::shared_ptr<Session> session, uint64_t serial) : session_(std::move(session)), serial_(serial) {}
  ~ExchangeImpl() override {
    if (!answered_ && !closed_)
      respond({500, "application/json", R"({"error":{"message":"[internal] no answer","type":"server_error"}})"});
  }

  void respond(Response r) override {
    if (answered_.exchange(true)) return;
    status_ = r.status;
    std::string head = head_of(r.status, r.content_type, r.headers);
    if (r.status != 204 && r.status != 304) head += "Content-Length: " + std::to_string(r.body.size()) + "\r\n";
    head += "\r\n";
    if (!session_->is_head()) head += r.body;
    post(std::move(head), true, false);
    done();
  }
  void begin_stream(int status, const std::string& type, const Headers& headers) override {
    if (answered_.exchange(true)) return;
    status_ = status;
    streaming_ = true;
    chunked_ = session_->version() >= 11;
    std::string head = head_of(status, type, headers);
    if (chunked_) head += "Transfer-Encoding: chunked\r\n";
    post(head + "\r\n", session_->is_head(), false);
    if (session_->is_head()) finished_ = true;
  }
  void write(std::string data, bool droppable) override {
    if (!streaming_ || finished_ || data.empty()) return;
    if (chunked_) {
      char size[24];
      std::snprintf(size, sizeof size, "%zx\r\n", data.size());
      data = size + data + "\r\n";
    }
    post(std::move(data), false, droppable);
  }
  void finish() override {
    if (!streaming_ || finished_.exchange(true)) return;
    post(chunked_ ? "0\r\n\r\n" : "", true, false);
    done();
  }
  bool closed() const override { return closed_; }
  void on_closed(std::function<void()> f) override {
    {
      const std::lock_guard lock(mutex_);
      if (!closed_) {
        closers_.push_back(std::move(f));
        return;
      }
    }
    f();
  }
  /// On the I/O thread: the client is gone before the end.
  void client_gone() {
    std::vector<std::function<void()>> closers;
    {
      const std::lock_guard lock(mutex_);
      if (closed_.exchange(true)) return;
      closers.swap(closers_);
    }
    for (auto& f : closers) f();
    if (!answered_ || (streaming_ && !finished_)) {
      status_ = 499;
      done();
    }
  }

 private:
  std::string head_of(int status, const std::string& type, const Headers& headers) const {
    std::string head = fmt::format("HTTP/1.1 {} {}\r\n", status, reason_phrase(status));
    if (!type.empty()) head += "Content-Type: " + header_text(type) + "\r\n";
    for (const Headers* list : {&common_headers, &headers})
      for (const auto& [key, value] : *list) head += header_text(key) + ": " + header_text(value) + "\r\n";
    const bool keep = session_->keep_alive() && (!streaming_ || chunked_);
    head += keep ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
    return head;
  }
  void post(std::string data, bool last, bool droppable) {
    net::post(session_->io().context, [s = session_, n = serial_, d = std::move(data), last, droppable]() mutable {
      s->send(n, std::move(d), last, droppable);
    });
  }
  void done() {
    std::function<void(int)> f;
    {
      const std::lock_guard lock(mutex_);
      f.swap(on_answered);
      closers_.clear();
    }
    if (f) f(status_);
  }

  std::shared_ptr<Session> session_;
  const uint64_t serial_;
  std::atomic<bool> answered_{false}, streaming_{false}, finished_{false}, closed_{false};
  bool chunked_ = true;
  int status_ = 0;
  std::mutex mutex_;
  std::vector<std::function<void()>> closers_;
};

void Session::read() {
  if (closed_) return;
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(io_.limits.header_bytes));
  parser_->body_limit(io_.limits.body_bytes);
  stream_.expires_after(std::chrono::seconds(io_.limits.idle_seconds));
  http::async_read_header(stream_, buffer_, *parser_,
                          [self = shared_from_this()](Code ec, size_t) { self->on_head(ec); });
}

void Session::on_head(Code ec) {
  if (!ec) {
    const auto& head = parser_->get();
    version_ = head.version();
    if (beast::iequals(head[http::field::expect], "100-continue")) {
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      Code ignored;  // 25 bytes into an empty send buffer: does not block
      stream_.socket().send(net::buffer(kContinue.data(), kContinue.size()), 0, ignored);
    }
    stream_.expires_after(std::chrono::seconds(io_.limits.body_seconds));
    http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](Code e, size_t) { self->on_request(e); });
    return;
  }
  on_request(ec);
}

void Session::on_request(Code ec) {
  if (closed_) return;
  if (!ec) return dispatch();
  if (ec == http::error::body_limit) return refuse(413, "the body is larger than this server takes");
  if (ec == http::error::header_limit || ec == http::error::buffer_overflow)
    return refuse(431, "the header is larger than this server takes");
  if (ec == http::error::end_of_stream || ec == beast::error::timeout || ec == net::error::operation_aborted ||
      ec.category() == net::error::get_system_category() || ec == http::error::partial_message)
    return close();
  refuse(400, "not HTTP");
}

void Session::refuse(int status, const char* message) {
  keep_alive_ = false;
  ++serial_;
  exchange_.reset();
  const std::string body =
      fmt::format(R"({{"error":{{"message":"[http] {}","type":"invalid_request_error"}}}})", message);
  send(serial_,
       fmt::format(
           "HTTP/1.1 {} {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
           status, reason_phrase(status), body.size(), body),
       true, false);
}

void Session::dispatch() {
  auto message = parser_->release();
  keep_alive_ = message.keep_alive();
  head_ = message.method() == http::verb::head;
  auto exchange = std::make_shared<ExchangeImpl>(shared_from_this(), ++serial_);
  Request& r = exchange->request;
  r.method = std::string(message.method_string());
  r.remote = remote_;
  for (const auto& field : message) {
    std::string key(field.name_string());
    std::transform(key.begin(), key.end(), key.begin(), [](unsigned char c) { return std::tolower(c); });
    r.headers[key] = std::string(field.value());
  }
  const std::string target(message.target());
  r.body = std::move(message.body());
  exchange_ = exchange;
  stream_.expires_never();
  if (!parse_target(target, r)) {
    exchange->respond(
        {400, "application/json", R"({"error":{"message":"[http] malformed target","type":"invalid_request_error"}})"});
    return;
  }
  watch(serial_);
  io_.accept(std::move(exchange));
}

// A client that hangs up makes its socket readable with nothing to read.
void Session::watch(uint64_t serial) {
  if (buffer_.size() > 0) return;  // the next request is here already
  stream_.socket().async_wait(tcp::socket::wait_read, [self = shared_from_this(), serial](Code ec) {
    if (ec || self->closed_ || self->serial_ != serial || self->exchange_.expired()) return;
    char c;
    const ssize_t n = ::recv(self->stream_.socket().native_handle(), &c, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return self->watch(serial);
    if (n <= 0) self->gone();
  });
}

void Session::send(uint64_t serial, std::string data, bool last, bool droppable) {
  if (closed_ || serial != serial_ || last_) return;
  if (droppable && out_bytes_ > kDropAbove) return;
  if (out_bytes_ + data.size() > kCloseAbove) return gone();
  last_ = last;
  if (!data.empty()) {
    out_bytes_ += data.size();
    out_.push_back(std::move(data));
  }
  if (!writing_) write_some();
}

void Session::write_some() {
  while (!out_.empty() && sent_ == out_.front().size()) {
    out_bytes_ -= sent_;
    out_.pop_front();
    sent_ = 0;
  }
  if (out_.empty()) {
    writing_ = false;
    if (last_) answered();
    return;
  }
  writing_ = true;
  stream_.expires_after(std::chrono::seconds(io_.limits.write_seconds));
  stream_.async_write_some(net::buffer(out_.front().data() + sent_, out_.front().size() - sent_),
                           [self = shared_from_this()](Code ec, size_t n) {
                             if (self->closed_) return;
                             if (ec) return self->gone();
                             self->sent_ += n;
                             self->stream_.expires_never();
                             self->write_some();
                           });
}

void Session::answered() {
  last_ = false;
  exchange_.reset();
  ++serial_;  // whatever comes late from the old exchange is ignored
  if (keep_alive_) return read();
  linger();
}

// Closing with unread input would reset the connection and could take the answer with it.
void Session::linger() {
  Code ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  stream_.expires_after(std::chrono::seconds(2));
  stream_.async_read_some(net::buffer(waste_), [self = shared_from_this()](Code ec, size_t) {
    if (ec || ++self->lingered_ > 64) return self->close();
    self->linger();
  });
}

void Session::gone() {
  if (auto e = exchange_.lock()) e->client_gone();
  close();
}

void Session::close() {
  if (std::exchange(closed_, true)) return;
  if (auto e = exchange_.lock()) e->client_gone();
  Code ignored;
  stream_.socket().close(ignored);
  stream_.cancel();
  io_.sessions.erase(shared_from_this());
  io_.count = static_cast<int>(io_.sessions.size());
}

class HttpServerImpl final : public HttpServer {
 public:
  ~HttpServerImpl() override { stop(); }

  Result<void> open(const std::string& address, uint16_t port, const HttpLimits& limits, Accept accept) {
    io_.limits = limits;
    io_.accept = std::move(accept);
    Code ec;
    const auto ip = net::ip::make_address(address, ec);
    if (ec) return usage_error("[serve] --host expected an IP address, got '{}'", address);
    const tcp::endpoint endpoint(ip, port);
    if (!ec) acceptor_.open(endpoint.protocol(), ec);
    if (!ec) acceptor_.set_option(net::socket_base::reuse_address(true), ec);
    if (!ec) acceptor_.bind(endpoint, ec);
    if (!ec) acceptor_.listen(1024, ec);
    if (ec) return fail(ErrorCode::failed, "[serve] cannot listen on {}:{}: {}", address, port, ec.message());
    port_ = acceptor_.local_endpoint(ec).port();
    accept_next();
    thread_ = std::thread([this] {
      for (;;) try {
          io_.context.run();
          return;
        } catch (const std::exception&) {  // one connection's trouble must not end the others
        }
    });
    return {};
  }
  uint16_t port() const override { return port_; }
  int connections() const override { return io_.count; }
  void stop_listening() override {
    net::post(io_.context, [this] {
      Code ignored;
      acceptor_.close(ignored);
    });
  }
  void stop() override {
    if (!thread_.joinable()) return;
    stop_listening();
    net::post(io_.context, [this] {
      const auto all = io_.sessions;
      for (const auto& s : all) s->close();
      io_.context.stop();
    });
    thread_.join();
    io_.sessions.clear();
  }

 private:
  void accept_next() {
    acceptor_.async_accept([this](Code ec, tcp::socket socket) {
      if (ec == net::error::operation_aborted || !acceptor_.is_open()) return;
      if (ec) {  // out of file descriptors, say: wait for some to come back
        retry_.expires_after(std::chrono::milliseconds(100));
        retry_.async_wait([this](Code e) {
          if (!e) accept_next();
        });
        return;
      }
      auto session = std::make_shared<Session>(io_, std::move(socket));
      io_.sessions.insert(session);
      io_.count = static_cast<int>(io_.sessions.size());
      if (io_.count > io_.limits.connections)
        session->refuse(503, "too many connections");
      else
        session->read();
      accept_next();
    });
  }

  Io io_;
  tcp::acceptor acceptor_{io_.context};
  net::steady_timer retry_{io_.context};
  std::thread thread_;
  uint16_t port_ = 0;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::start(const std::string& address, uint16_t port,
                                                      const HttpLimits& limits, Accept accept) {
  auto server = std::make_unique<HttpServerImpl>();
  DQ_CHECK(server->open(address, port, limits, std::move(accept)));
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace danqing::server
