#include "server/queue/nats_objects.h"

#include <algorithm>
#include <ctime>

#include "base/try.h"
#include "server/auth/crypto.h"
#include "server/http/http.h"

namespace danqing::server::nats {
namespace {

constexpr size_t kChunk = 128 * 1024;

std::string url_base64(std::string_view bytes) {
  std::string out = base64(std::string(bytes));
  std::replace(out.begin(), out.end(), '+', '-');
  std::replace(out.begin(), out.end(), '/', '_');
  return out;
}

std::string digest(const std::string& bytes) {
  const std::string hex = sha256_hex(bytes);
  std::string raw;
  for (size_t i = 0; i < hex.size(); i += 2) raw += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return "SHA-256=" + url_base64(raw);
}

std::vector<uint64_t> sequences_of(const Json& info) {
  std::vector<uint64_t> out;
  if (info.contains("sequences") && info["sequences"].is_array())
    for (const Json& s : info["sequences"])
      if (s.is_number_unsigned()) out.push_back(s.get<uint64_t>());
  return out;
}

std::string now_text() {
  const std::time_t t = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&t, &utc);
  char out[32];
  std::strftime(out, sizeof out, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return out;
}

}  // namespace

std::string Objects::meta(const std::string& name) const { return "$O." + bucket_ + ".M." + url_base64(name); }

Result<void> Objects::put(const std::string& name, const std::string& bytes) {
  const std::string nuid = random_hex(11);
  size_t count = 0;
  std::vector<uint64_t> sequences;  // spare the server searches; other clients ignore the field
  for (size_t at = 0; at < bytes.size(); at += kChunk, ++count) {
    Client::Put chunk;
    chunk.sequence = &sequences.emplace_back();
    DQ_CHECK(client_->put(chunks(nuid), bytes.substr(at, kChunk), chunk));
  }
  const Json info{{"name", name},         {"bucket", bucket_},      {"nuid", nuid},
                  {"size", bytes.size()}, {"chunks", count},        {"digest", digest(bytes)},
                  {"mtime", now_text()},  {"sequences", sequences}, {"options", {{"max_chunk_size", kChunk}}}};
  Client::Put how;
  how.headers = {{"Nats-Rollup", "sub"}};
  DQ_CHECK(client_->put(meta(name), dump_json(info), how));
  return {};
}

Result<std::optional<std::string>> Objects::get(const std::string& name) {
  DQ_TRY(const std::optional<std::string> found, client_->last(stream(), meta(name)));
  if (!found) return std::optional<std::string>();
  DQ_TRY(const Json info, parse_json(*found, "object " + name));
  if (!info.is_object() || info.value("deleted", false)) return std::optional<std::string>();
  std::string bytes;
  for (const uint64_t sequence : sequences_of(info)) {
    DQ_TRY(const std::optional<std::string> part, client_->at(stream(), sequence));
    if (part) bytes += *part;
  }
  if (digest(bytes) == info.value("digest", "")) return std::optional<std::string>(std::move(bytes));
  // Written by another client, or copied into another stream since.
  const size_t count = info.value("chunks", size_t{0});
  DQ_TRY(const std::vector<std::string> parts, client_->all(stream(), chunks(info.value("nuid", "")), count));
  bytes.clear();
  for (const std::string& p : parts) bytes += p;
  if (parts.size() != count || digest(bytes) != info.value("digest", ""))
    return fail(ErrorCode::failed, "[queue] object {} expected {} whole chunks, got {}", name, count, parts.size());
  return std::optional<std::string>(std::move(bytes));
}

Result<void> Objects::remove(const std::string& name) {
  DQ_TRY(const std::optional<std::string> found, client_->last(stream(), meta(name)));
  if (!found) return {};
  const auto info = parse_json(*found, "object " + name);
  if (info && info->is_object()) {
    const std::vector<uint64_t> sequences = sequences_of(*info);
    for (const uint64_t sequence : sequences) DQ_CHECK(client_->remove(stream(), sequence));
    if (sequences.empty()) DQ_CHECK(client_->purge(stream(), chunks(info->value("nuid", ""))));
  }
  return client_->purge(stream(), meta(name));
}

}  // namespace danqing::server::nats
