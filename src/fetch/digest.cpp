// The low-level interface of OpenSSL, because its contexts are plain structures that can be kept in a file.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "fetch/digest.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/sha.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/try.h"

namespace danqing::fetch {
namespace {

std::string to_hex(std::span<const unsigned char> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const unsigned char b : bytes) {
    out += kDigits[b >> 4];
    out += kDigits[b & 15];
  }
  return out;
}

template <class T>
T& as(std::vector<unsigned char>& bytes) {
  return *reinterpret_cast<T*>(bytes.data());  // the vector's memory is aligned for every plain structure
}

}  // namespace

Digest::Digest(Kind kind, uint64_t size) : kind_(kind) {
  if (kind == Kind::sha256) {
    context_.resize(sizeof(SHA256_CTX));
    SHA256_Init(&as<SHA256_CTX>(context_));
    return;
  }
  context_.resize(sizeof(SHA_CTX));
  SHA1_Init(&as<SHA_CTX>(context_));
  std::string head = fmt::format("blob {}", size);
  head += '\0';
  update(std::as_bytes(std::span(head)));
}

void Digest::update(std::span<const std::byte> bytes) {
  if (kind_ == Kind::sha256)
    SHA256_Update(&as<SHA256_CTX>(context_), bytes.data(), bytes.size());
  else
    SHA1_Update(&as<SHA_CTX>(context_), bytes.data(), bytes.size());
}

std::string Digest::hex() const {
  std::vector<unsigned char> copy = context_;
  unsigned char out[SHA256_DIGEST_LENGTH];
  if (kind_ == Kind::sha256) {
    SHA256_Final(out, &as<SHA256_CTX>(copy));
    return to_hex({out, SHA256_DIGEST_LENGTH});
  }
  SHA1_Final(out, &as<SHA_CTX>(copy));
  return to_hex({out, SHA_DIGEST_LENGTH});
}

std::string Digest::state() const { return to_hex(context_); }

std::optional<Digest> Digest::restore(Kind kind, const std::string& state) {
  Digest d(kind);
  if (state.size() != 2 * d.context_.size() || checked_hex(state, state.size()).empty()) return {};
  for (size_t i = 0; i < d.context_.size(); ++i)
    d.context_[i] = static_cast<unsigned char>(std::stoi(state.substr(2 * i, 2), nullptr, 16));
  // A number that the library uses as an index into the context.
  const unsigned pending = kind == Kind::sha256 ? as<SHA256_CTX>(d.context_).num : as<SHA_CTX>(d.context_).num;
  if (pending >= 64) return {};
  if (kind == Kind::sha256 && as<SHA256_CTX>(d.context_).md_len != SHA256_DIGEST_LENGTH) return {};
  return d;
}

Result<std::string> digest_file(const std::filesystem::path& path, Digest::Kind kind,
                                const std::function<bool(uint64_t)>& progress) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return bad_input("[file] cannot open {}: {}", path.string(), std::strerror(errno));
  const off_t size = ::lseek(fd, 0, SEEK_END);
  ::lseek(fd, 0, SEEK_SET);
  Digest digest(kind, size > 0 ? static_cast<uint64_t>(size) : 0);
  std::vector<std::byte> buffer(1 << 20);
  Result<std::string> out = std::string();
  for (;;) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) out = bad_input("[file] cannot read {}: {}", path.string(), std::strerror(errno));
    if (n == 0) out = digest.hex();
    if (n <= 0) break;
    digest.update(std::span(buffer).first(static_cast<size_t>(n)));
    if (progress && !progress(static_cast<uint64_t>(n))) {
      out = fail(ErrorCode::cancelled, "[pull] cancelled");
      break;
    }
  }
  ::close(fd);
  return out;
}

std::string sha256_of(std::string_view text) {
  Digest d;
  d.update(std::as_bytes(std::span(text)));
  return d.hex();
}

std::string checked_hex(std::string_view text, size_t length) {
  if (text.size() != length) return "";
  std::string out;
  for (const char c : text) {
    const char l = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
    if (!((l >= '0' && l <= '9') || (l >= 'a' && l <= 'f'))) return "";
    out += l;
  }
  return out;
}

}  // namespace danqing::fetch
