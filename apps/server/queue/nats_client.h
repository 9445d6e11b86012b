// The NATS C client with errors as values and memory that frees itself. The only header that includes it.
#pragma once
#include <nats/nats.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "danqing/result.h"
#include "server/queue/nats_queue.h"

namespace danqing::server::nats {

template <auto Destroy>
struct Free {
  template <class T>
  void operator()(T* p) const {
    Destroy(p);
  }
};
using Msg = std::unique_ptr<natsMsg, Free<natsMsg_Destroy>>;
using Subscription = std::unique_ptr<natsSubscription, Free<natsSubscription_Destroy>>;
using Context = std::unique_ptr<jsCtx, Free<jsCtx_Destroy>>;
using Connection = std::unique_ptr<natsConnection, Free<natsConnection_Destroy>>;
using Headers = std::vector<std::pair<std::string, std::string>>;

std::string text(const natsMsg* m);
std::string header(natsMsg* m, const char* name);
/// A word of a subject or the name of a consumer: what is not a letter, a digit, '-' or '_' becomes '=XX'.
std::string token(const std::string& name);
std::string untoken(const std::string& word);

/// One connection. Thread-safe.
class Client {
 public:
  static Result<std::shared_ptr<Client>> connect(const NatsOptions& options);
  ~Client();
  bool connected() const;
  size_t largest_message() const;  ///< bytes of data, as the server said when it was reached
  /// Empty while connected.
  std::string trouble() const;
  jsCtx* js() const { return js_.get(); }
  natsConnection* connection() const { return nc_.get(); }
  Error error(const char* what, natsStatus status, int js_error = 0) const;

  /// Nobody confirms.
  void publish(const std::string& subject, const std::string& data, const Headers& headers = {});
  struct Put {
    std::string msg_id;         ///< a second one within the stream's window is dropped
    bool only_if_none = false;  ///< refused if the stream has a message of the subject
    Headers headers;
    uint64_t* sequence = nullptr;  ///< where it was stored
  };
  /// Stored when it returns. False: there was one already.
  Result<bool> put(const std::string& subject, const std::string& data, const Put& how);
  Result<bool> put(const std::string& subject, const std::string& data) { return put(subject, data, Put()); }
  /// The newest message of a subject.
  Result<std::optional<std::string>> last(const std::string& stream, const std::string& subject);
  /// Messages of a subject (which may have wildcards), oldest first, at most `most`.
  Result<std::vector<std::string>> all(const std::string& stream, const std::string& subject, size_t most);
  /// One message by its sequence; none if it is gone.
  Result<std::optional<std::string>> at(const std::string& stream, uint64_t sequence);
  Result<void> remove(const std::string& stream, uint64_t sequence);
  Result<void> purge(const std::string& stream, const std::string& subject);
  void flush(int milliseconds);

 private:
  explicit Client(std::string servers) : servers_(std::move(servers)) {}
  static void on_connected(natsConnection*, void* self);
  static void on_disconnected(natsConnection*, void* self);
  static void on_closed(natsConnection*, void* self);
  static void on_error(natsConnection*, natsSubscription*, natsStatus, void*) {}
  Result<natsMsg*> direct(const std::string& stream, jsDirectGetMsgOptions& o);
  const std::string servers_;
  Connection nc_;
  Context js_;
  mutable std::mutex mutex_;
  std::string last_error_;
  std::atomic<bool> leaving_{false};
};

}  // namespace danqing::server::nats
