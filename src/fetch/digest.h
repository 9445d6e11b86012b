// Hashes that hubs give for their files. The state can be kept, so that an interrupted run does not read again.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "danqing/result.h"

namespace danqing::fetch {

class Digest {
 public:
  enum class Kind { sha256, git_sha1 };  ///< git_sha1: of a git blob, which begins with its size
  explicit Digest(Kind kind = Kind::sha256, uint64_t size = 0);
  void update(std::span<const std::byte> bytes);
  std::string hex() const;  ///< of what was given so far; may go on afterwards
  std::string state() const;
  static std::optional<Digest> restore(Kind kind, const std::string& state);

 private:
  Kind kind_;
  std::vector<unsigned char> context_;
};

/// Reads the whole file. `progress`: bytes just read; false cancels.
Result<std::string> digest_file(const std::filesystem::path& path, Digest::Kind kind,
                                const std::function<bool(uint64_t)>& progress = {});
std::string sha256_of(std::string_view text);
/// Lower-case hex of the right length, else empty: what a hub says is not trusted.
std::string checked_hex(std::string_view text, size_t length);

}  // namespace danqing::fetch
