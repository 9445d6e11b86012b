// Sockets to exchanges: one I/O thread that only reads, writes and notices when a client goes away.
#pragma once
#include <atomic>

#include "danqing/result.h"
#include "server/http/http.h"

namespace danqing::server {

struct HttpLimits {
  size_t body_bytes = 32u << 20;
  size_t header_bytes = 16u << 10;
  int idle_seconds = 60;   ///< between requests, and for the head of one
  int body_seconds = 30;   ///< for the body
  int write_seconds = 60;  ///< without any progress of a reader
  int connections = 2048;
};

/// Called on the I/O thread for every request that could be read; must not block.
using Accept = std::function<void(ExchangePtr)>;

class HttpServer {
 public:
  /// Binds and listens; port 0 takes a free one. Errors: failed (address in use, not ours).
  static Result<std::unique_ptr<HttpServer>> start(const std::string& address, uint16_t port, const HttpLimits& limits,
                                                   Accept accept);
  virtual ~HttpServer() = default;
  virtual uint16_t port() const = 0;
  virtual int connections() const = 0;
  virtual void stop_listening() = 0;
  /// Closes every connection and joins the I/O thread.
  virtual void stop() = 0;
};

}  // namespace danqing::server
