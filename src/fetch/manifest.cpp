#include "fetch/manifest.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "base/try.h"
#include "fetch/digest.h"
#include "fetch/remote.h"

namespace danqing::fetch {
namespace {

namespace fs = std::filesystem;
constexpr int kFormat = 1;

void sync_path(const fs::path& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

const ManifestFile* Manifest::find(const std::string& path) const {
  const auto it = std::find_if(files.begin(), files.end(), [&](const ManifestFile& f) { return f.path == path; });
  return it == files.end() ? nullptr : &*it;
}

ManifestFile* Manifest::find(const std::string& path) {
  return const_cast<ManifestFile*>(std::as_const(*this).find(path));
}

fs::path manifest_path(const fs::path& model) { return model / ".danqing" / "manifest.json"; }

Result<Manifest> read_manifest(const fs::path& model) {
  const fs::path path = manifest_path(model);
  DQ_TRY(const Json json, read_json(path));
  DQ_TRY(const JsonObject top, JsonObject::of(json, path.string()));
  DQ_TRY(const int64_t format, top.integer("format"));
  if (format != kFormat)
    return bad_input("[models] {}: expected format {}, got {}; a newer danqing wrote it", path.string(), kFormat,
                     format);
  Manifest m;
  DQ_TRY(m.source, top.string("source", ""));
  DQ_TRY(m.endpoint, top.string("endpoint", ""));
  DQ_TRY(m.repository, top.string("repository", ""));
  DQ_TRY(m.revision, top.string("revision", ""));
  DQ_TRY(m.commit, top.string("commit", ""));
  DQ_TRY(m.quant, top.string("quant", ""));
  DQ_TRY(m.complete, top.boolean("complete", false));
  if (const Json* urls = top.get("urls"); urls && urls->is_array())
    for (const Json& u : *urls)
      if (u.is_string()) m.urls.push_back(u.get<std::string>());
  const Json* files = top.get("files");
  if (!files || !files->is_array())
    return bad_input("[models] {}: 'files' expected an array, got {}", path.string(),
                     files ? files->type_name() : "none");
  for (const Json& f : *files) {
    DQ_TRY(const JsonObject o, JsonObject::of(f, path.string() + " files"));
    ManifestFile file;
    DQ_TRY(file.path, o.string("path"));
    DQ_CHECK(check_remote_path(file.path));  // the file may have been edited, and rm and update act on its names
    DQ_TRY(const int64_t size, o.integer_in("size", 0, INT64_MAX, 0));
    file.size = static_cast<uint64_t>(size);
    DQ_TRY(file.sha256, o.string("sha256", ""));
    DQ_TRY(file.remote, o.string("remote", ""));
    DQ_TRY(file.mtime, o.integer("mtime", 0));
    m.files.push_back(std::move(file));
  }
  return m;
}

Result<void> write_manifest(const fs::path& model, const Manifest& m) {
  Json files = Json::array();
  for (const ManifestFile& f : m.files)
    files.push_back(
        {{"path", f.path}, {"size", f.size}, {"sha256", f.sha256}, {"remote", f.remote}, {"mtime", f.mtime}});
  const Json json = {{"format", kFormat},          {"source", m.source},     {"endpoint", m.endpoint},
                     {"repository", m.repository}, {"revision", m.revision}, {"commit", m.commit},
                     {"quant", m.quant},           {"urls", m.urls},         {"complete", m.complete},
                     {"files", std::move(files)}};
  const fs::path path = manifest_path(model);
  std::error_code ec;
  fs::create_directories(path.parent_path(), ec);
  if (ec) return fail(ErrorCode::failed, "[pull] cannot create {}: {}", path.parent_path().string(), ec.message());
  DQ_CHECK(write_file(path, dump_json(json, 1) + "\n"));
  sync_path(path, O_RDONLY);
  sync_path(path.parent_path(), O_RDONLY | O_DIRECTORY);
  return {};
}

std::pair<uint64_t, int64_t> stat_file(const fs::path& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0 || !S_ISREG(st.st_mode)) return {0, 0};
  return {static_cast<uint64_t>(st.st_size), int64_t{st.st_mtim.tv_sec} * 1'000'000'000 + st.st_mtim.tv_nsec};
}

Result<FolderLock> FolderLock::take(const fs::path& model) {
  const fs::path path = model / ".danqing" / "lock";
  std::error_code ec;
  fs::create_directories(path.parent_path(), ec);
  if (ec) return fail(ErrorCode::failed, "[pull] cannot create {}: {}", path.parent_path().string(), ec.message());
  FolderLock lock;
  lock.fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (lock.fd_ < 0) return fail(ErrorCode::failed, "[pull] cannot write {}: {}", path.string(), std::strerror(errno));
  if (::flock(lock.fd_, LOCK_EX | LOCK_NB) != 0)
    return fail(ErrorCode::failed, "[pull] {}: another danqing is at work on this model", model.string());
  return lock;
}

FolderLock::FolderLock(FolderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace danqing::fetch
