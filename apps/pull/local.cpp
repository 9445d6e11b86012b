#include "pull/local.h"

#include <sys/statvfs.h>

#include <algorithm>

#include "base/try.h"
#include "base/units.h"

namespace danqing::app {
namespace {

constexpr uint64_t kSpare = 16 << 20;  ///< bytes of the disk left free

/// Bytes that the item will still take.
uint64_t missing_bytes(const Item& item, const std::filesystem::path& file) {
  const uint64_t source = item.source_bytes();
  if (!item.quantiser) return source - std::min(source, fetch::bytes_present(item.sources[0], file));
  if (source == 0) return item.quantiser->output_bytes();
  const double left = 1 - static_cast<double>(item.quantiser->present()) / static_cast<double>(source);
  return static_cast<uint64_t>(left * static_cast<double>(item.quantiser->output_bytes()));
}

}  // namespace

Result<bool> lies_here(const fetch::Http& http, const std::filesystem::path& model, const Item& item,
                       const fetch::Manifest& old, bool verify, fetch::ManifestFile& entry) {
  using fetch::Digest;
  const std::filesystem::path file = model / item.path;
  const auto [size, mtime] = fetch::stat_file(file);
  if (mtime == 0) return false;
  const auto hash = [&](Digest::Kind kind) {
    return fetch::digest_file(file, kind, [&](uint64_t) { return !http.cancelled(); });
  };
  const fetch::ManifestFile* before = old.find(item.path);
  if (before && !before->sha256.empty()) {
    bool same = before->size == size && before->mtime == mtime;
    if (same && verify) {
      DQ_TRY(const std::string got, hash(Digest::Kind::sha256));
      same = got == before->sha256;
      if (!same) http.say(fmt::format("{}: is damaged and fetched again", item.path));
    } else if (!same) {
      http.say(fmt::format("{}: was changed here and is replaced", item.path));
    }
    if (!same || before->remote != item.remote || item.remote.empty()) return false;
    entry = *before;
    return true;
  }
  // Somebody else's copy, or a run that ended between the name and the note: the hub's hash tells.
  const fetch::RemoteFile& f = item.sources[0];
  if (item.quantise || f.size != size || (f.sha256.empty() && f.git_sha1.empty())) return false;
  DQ_TRY(std::string sha256, hash(Digest::Kind::sha256));
  std::string got = sha256;
  if (f.sha256.empty()) {
    DQ_TRY(got, hash(Digest::Kind::git_sha1));
  }
  if (got != (f.sha256.empty() ? f.git_sha1 : f.sha256)) return false;
  entry.sha256 = std::move(sha256);
  entry.size = size;
  entry.mtime = mtime;
  return true;
}

Result<void> check_space(const std::filesystem::path& model, const std::vector<Item>& items) {
  uint64_t needed = 0;
  bool quantised = false;
  for (const Item& item : items) {
    quantised |= item.quantise;
    if (!item.done) needed += missing_bytes(item, model / item.path);
  }
  struct statvfs st {};
  if (needed == 0 || ::statvfs(model.c_str(), &st) != 0) return {};
  needed += kSpare;
  const uint64_t free = uint64_t{st.f_bavail} * st.f_frsize;
  if (free >= needed) return {};
  return fail(ErrorCode::failed,
              "[pull] expected {} free at {}, got {}: {} are missing; free some or choose another disk with --dir{}",
              format_bytes(needed), model.string(), format_bytes(free), format_bytes(needed - free),
              quantised ? "" : ", or --quant q4_K takes about a third");
}

}  // namespace danqing::app
