// API keys: who they belong to and what they may do. The file holds only hashes.
#pragma once
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "danqing/result.h"
#include "server/http/http.h"

namespace danqing::server {

/// Lines "name:scope:sha256"; scope is admin or user; '#' starts a comment. Thread-safe.
class ApiKeys {
 public:
  /// No file: everyone is an admin without a name.
  Result<void> load(const std::filesystem::path& file);
  bool open() const;  ///< there are no keys
  /// From "Authorization: Bearer KEY" or "Basic base64(anything:KEY)" or "X-Api-Key"; empty = not allowed.
  std::optional<Caller> caller(const Request& request) const;
  /// A new key and the line that lets it in.
  struct NewKey {
    std::string key, line;
  };
  static Result<NewKey> make(const std::string& name, bool admin);

 private:
  struct Entry {
    Caller caller;
    std::string hash;
  };
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  bool open_ = true;
};

}  // namespace danqing::server
