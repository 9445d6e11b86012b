#include "server/queue/nats_client.h"

#include <algorithm>
#include <limits>

#include "base/text.h"
#include "base/try.h"
#include "server/ops/ecs_log.h"

namespace danqing::server::nats {
namespace {

struct Closing {
  natsOptions* p = nullptr;
  ~Closing() { natsOptions_Destroy(p); }
};

bool plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

natsStatus set_secrets(natsOptions* o, const NatsOptions& n) {
  natsStatus s = NATS_OK;
  if (!n.creds.empty()) s = natsOptions_SetUserCredentialsFromFiles(o, n.creds.c_str(), nullptr);
  if (s == NATS_OK && !n.user.empty()) s = natsOptions_SetUserInfo(o, n.user.c_str(), n.password.c_str());
  if (s == NATS_OK && !n.token.empty()) s = natsOptions_SetToken(o, n.token.c_str());
  return s;
}

Result<void> set_tls(natsOptions* o, const NatsOptions& n) {
  const bool tls = !n.tls_ca.empty() || !n.tls_cert.empty() || n.servers[0].rfind("tls://", 0) == 0;
  if (!tls) return {};
  if (natsOptions_SetSecure(o, true) != NATS_OK) return usage_error("[queue] this NATS client has no TLS");
  if (!n.tls_ca.empty() && natsOptions_LoadCATrustedCertificates(o, n.tls_ca.c_str()) != NATS_OK)
    return bad_input("[queue] {} expected certificates in PEM form", n.tls_ca);
  if (!n.tls_cert.empty() && natsOptions_LoadCertificatesChain(o, n.tls_cert.c_str(), n.tls_key.c_str()) != NATS_OK)
    return bad_input("[queue] {} and {} expected a certificate and its key in PEM form", n.tls_cert, n.tls_key);
  return {};
}

}  // namespace

std::string text(const natsMsg* m) {
  const char* data = natsMsg_GetData(m);
  return data ? std::string(data, static_cast<size_t>(natsMsg_GetDataLength(m))) : "";
}

std::string header(natsMsg* m, const char* name) {
  const char* value = nullptr;
  return natsMsgHeader_Get(m, name, &value) == NATS_OK && value ? value : "";
}

std::string token(const std::string& name) {
  std::string out;
  for (const char c : name)
    if (plain(c))
      out += c;
    else
      out += fmt::format("={:02X}", static_cast<unsigned char>(c));
  return out.empty() ? "=00" : out;
}

std::string untoken(const std::string& word) {
  std::string out;
  for (size_t i = 0; i < word.size(); ++i) {
    if (word[i] != '=' || i + 2 >= word.size()) {
      out += word[i];
      continue;
    }
    const auto c = static_cast<char>(std::strtol(word.substr(i + 1, 2).c_str(), nullptr, 16));
    if (c) out += c;
    i += 2;
  }
  return out;
}

Result<std::shared_ptr<Client>> Client::connect(const NatsOptions& n) {
  std::shared_ptr<Client> c(new Client(fmt::format("{}", fmt::join(n.servers, ","))));
  Closing o;
  natsStatus s = natsOptions_Create(&o.p);
  std::vector<const char*> servers;
  for (const std::string& w : n.servers) servers.push_back(w.c_str());
  if (s == NATS_OK) s = natsOptions_SetServers(o.p, servers.data(), static_cast<int>(servers.size()));
  if (s == NATS_OK) s = natsOptions_SetName(o.p, ("danqing " + n.name).c_str());
  if (s == NATS_OK) s = set_secrets(o.p, n);
  if (s != NATS_OK) return bad_input("[queue] the NATS client refuses its settings: {}", natsStatus_GetText(s));
  DQ_CHECK(set_tls(o.p, n));
  natsOptions_SetTimeout(o.p, 3000);
  natsOptions_SetMaxReconnect(o.p, -1);
  natsOptions_SetReconnectWait(o.p, 500);
  natsOptions_SetReconnectJitter(o.p, 500, 500);
  natsOptions_SetPingInterval(o.p, 5000);
  natsOptions_SetMaxPingsOut(o.p, 2);
  natsOptions_SetFailRequestsOnDisconnect(o.p, true);
  natsOptions_SetErrorHandler(o.p, on_error, nullptr);
  natsOptions_SetDisconnectedCB(o.p, on_disconnected, c.get());
  natsOptions_SetReconnectedCB(o.p, on_connected, c.get());
  natsOptions_SetClosedCB(o.p, on_closed, c.get());
  natsOptions_SetRetryOnFailedConnect(o.p, true, on_connected, c.get());
  natsConnection* nc = nullptr;
  s = natsConnection_Connect(&nc, o.p);
  c->nc_.reset(nc);
  if (s != NATS_OK && s != NATS_NOT_YET_CONNECTED) {
    const char* why = nats_GetLastError(nullptr);
    return fail(ErrorCode::failed, "[queue] {} refuses the connection: {} {}", c->servers_, natsStatus_GetText(s),
                why ? one_line(why, 200) : "");
  }
  jsCtx* js = nullptr;
  jsOptions options;
  jsOptions_Init(&options);
  options.Wait = 5000;
  s = natsConnection_JetStream(&js, nc, &options);
  c->js_.reset(js);
  if (s != NATS_OK) return c->error("JetStream cannot be used", s);
  if (!c->connected())
    log_event(log::Level::warning, fmt::format("[queue] {} cannot be reached yet; trying on", c->servers_),
              {{"event.action", "queue-not-reached"}});
  return c;
}

Client::~Client() {
  leaving_ = true;
  js_.reset();
  if (nc_) natsConnection_Close(nc_.get());
}

void Client::on_connected(natsConnection*, void* self) {
  log_event(log::Level::info, "connected to " + static_cast<Client*>(self)->servers_,
            {{"event.action", "queue-connected"}});
}

void Client::on_disconnected(natsConnection*, void* self) {
  auto& c = *static_cast<Client*>(self);
  if (!c.leaving_)
    log_event(log::Level::warning, fmt::format("[queue] the connection to {} broke; trying on", c.servers_),
              {{"event.action", "queue-disconnected"}});
}

void Client::on_closed(natsConnection* nc, void* self) {
  auto& c = *static_cast<Client*>(self);
  if (c.leaving_) return;
  const char* why = nullptr;
  natsConnection_GetLastError(nc, &why);
  const std::lock_guard lock(c.mutex_);
  c.last_error_ = why && *why ? one_line(why, 200) : "the connection was closed";
}

bool Client::connected() const { return nc_ && natsConnection_Status(nc_.get()) == NATS_CONN_STATUS_CONNECTED; }

size_t Client::largest_message() const {
  constexpr int64_t kHeaders = 4096;
  const int64_t most = nc_ ? natsConnection_GetMaxPayload(nc_.get()) : 0;
  return most > kHeaders ? static_cast<size_t>(most - kHeaders) : std::numeric_limits<size_t>::max();
}

std::string Client::trouble() const {
  if (connected()) return "";
  if (natsConnection_IsClosed(nc_.get())) {
    const std::lock_guard lock(mutex_);
    return fmt::format("[queue] {} refuses this program: {}", servers_, last_error_);
  }
  return fmt::format("[queue] {} cannot be reached", servers_);
}

Error Client::error(const char* what, natsStatus status, int js_error) const {
  if (!connected()) return fail(ErrorCode::failed, "{}", trouble());
  const char* detail = js_error ? nats_GetLastError(nullptr) : nullptr;
  return fail(ErrorCode::failed, "[queue] {}: {}{}{}", what, natsStatus_GetText(status), detail ? ": " : "",
              detail ? one_line(detail, 200) : "");
}

void Client::publish(const std::string& subject, const std::string& data, const Headers& headers) {
  natsMsg* m = nullptr;
  if (!connected() ||
      natsMsg_Create(&m, subject.c_str(), nullptr, data.data(), static_cast<int>(data.size())) != NATS_OK)
    return;
  const Msg msg(m);
  for (const auto& [k, v] : headers) natsMsgHeader_Set(m, k.c_str(), v.c_str());
  (void)natsConnection_PublishMsg(nc_.get(), m);
}

Result<bool> Client::put(const std::string& subject, const std::string& data, const Put& how) {
  if (!connected()) return fail(ErrorCode::failed, "{}", trouble());
  natsMsg* m = nullptr;
  natsStatus s = natsMsg_Create(&m, subject.c_str(), nullptr, data.data(), static_cast<int>(data.size()));
  if (s != NATS_OK) return error("a message cannot be made", s);
  const Msg msg(m);
  for (const auto& [k, v] : how.headers) natsMsgHeader_Set(m, k.c_str(), v.c_str());
  jsPubOptions o;
  jsPubOptions_Init(&o);
  if (!how.msg_id.empty()) o.MsgId = how.msg_id.c_str();
  o.ExpectNoMessage = how.only_if_none;
  jsPubAck* ack = nullptr;
  jsErrCode code{};
  s = js_PublishMsg(&ack, js(), m, &o, &code);
  const bool duplicate = ack && ack->Duplicate;
  if (ack && how.sequence) *how.sequence = ack->Sequence;
  jsPubAck_Destroy(ack);
  if (s == NATS_OK) return !duplicate;
  if (how.only_if_none && code == JSStreamWrongLastSequenceErr) return false;
  return error("NATS does not store it", s, code);
}

Result<natsMsg*> Client::direct(const std::string& stream, jsDirectGetMsgOptions& o) {
  if (!connected()) return fail(ErrorCode::failed, "{}", trouble());
  natsMsg* m = nullptr;
  const natsStatus s = js_DirectGetMsg(&m, js(), stream.c_str(), nullptr, &o);
  if (s == NATS_NOT_FOUND) return static_cast<natsMsg*>(nullptr);
  if (s != NATS_OK) return error("NATS does not answer", s);
  return m;
}

Result<std::optional<std::string>> Client::last(const std::string& stream, const std::string& subject) {
  jsDirectGetMsgOptions o;
  jsDirectGetMsgOptions_Init(&o);
  o.LastBySubject = subject.c_str();
  DQ_TRY(natsMsg * m, direct(stream, o));
  const Msg msg(m);
  return m ? std::optional<std::string>(text(m)) : std::nullopt;
}

Result<std::vector<std::string>> Client::all(const std::string& stream, const std::string& subject, size_t most) {
  std::vector<std::string> out;
  uint64_t next = 1;
  while (out.size() < most) {
    jsDirectGetMsgOptions o;
    jsDirectGetMsgOptions_Init(&o);
    o.NextBySubject = subject.c_str();
    o.Sequence = next;
    DQ_TRY(natsMsg * m, direct(stream, o));
    const Msg msg(m);
    if (!m) break;
    out.push_back(text(m));
    next = natsMsg_GetSequence(m) + 1;
  }
  return out;
}

Result<std::optional<std::string>> Client::at(const std::string& stream, uint64_t sequence) {
  jsDirectGetMsgOptions o;
  jsDirectGetMsgOptions_Init(&o);
  o.Sequence = sequence;
  DQ_TRY(natsMsg * m, direct(stream, o));
  const Msg msg(m);
  return m ? std::optional<std::string>(text(m)) : std::nullopt;
}

Result<void> Client::remove(const std::string& stream, uint64_t sequence) {
  if (!connected()) return fail(ErrorCode::failed, "{}", trouble());
  jsErrCode code{};
  const natsStatus s = js_DeleteMsg(js(), stream.c_str(), sequence, nullptr, &code);
  if (s != NATS_OK && code != JSSequenceNotFoundErr && code != JSNoMessageFoundErr && code != JSStreamMsgDeleteFailed)
    return error("NATS does not delete it", s, code);
  return {};
}

Result<void> Client::purge(const std::string& stream, const std::string& subject) {
  if (!connected()) return fail(ErrorCode::failed, "{}", trouble());
  jsOptions o;
  jsOptions_Init(&o);
  o.Stream.Purge.Subject = subject.c_str();
  jsErrCode code{};
  const natsStatus s = js_PurgeStream(js(), stream.c_str(), &o, &code);
  if (s != NATS_OK) return error("NATS does not delete it", s, code);
  return {};
}

void Client::flush(int milliseconds) {
  if (connected()) (void)natsConnection_FlushTimeout(nc_.get(), milliseconds);
}

}  // namespace danqing::server::nats
