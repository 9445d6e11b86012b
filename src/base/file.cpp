#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/try.h"

namespace danqing {
namespace {

struct Fd {
  int fd = -1;
  ~Fd() {
    if (fd >= 0) ::close(fd);
  }
};

Error os_error(const char* what, const std::filesystem::path& p, ErrorCode code = ErrorCode::bad_input) {
  return fail(code, "[file] cannot {} {}: {}", what, p.string(), std::strerror(errno));
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::filesystem::path& path) {
  Fd f{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // a FIFO in place of a model must not hang us
  if (f.fd < 0) return os_error("open", path);
  struct stat st {};
  if (::fstat(f.fd, &st) != 0) return os_error("stat", path);
  if (!S_ISREG(st.st_mode)) return bad_input("[file] expected a regular file, got something else: {}", path.string());
  std::shared_ptr<MappedFile> m(new MappedFile);
  m->path_ = path;
  m->size_ = static_cast<size_t>(st.st_size);
  if (m->size_ > 0) {
    void* p = ::mmap(nullptr, m->size_, PROT_READ, MAP_PRIVATE, f.fd, 0);
    if (p == MAP_FAILED) return os_error("map", path);
    m->data_ = static_cast<const std::byte*>(p);
  }
  return std::shared_ptr<const MappedFile>(std::move(m));
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

Result<std::string> read_text(const std::filesystem::path& path, size_t limit, bool pipes) {
  // Without O_NONBLOCK opening a pipe would wait for somebody to write into it.
  Fd f{::open(path.c_str(), O_RDONLY | O_CLOEXEC | (pipes ? 0 : O_NONBLOCK))};
  if (f.fd < 0) return os_error("open", path);
  struct stat st {};
  if (!pipes && ::fstat(f.fd, &st) == 0 && !S_ISREG(st.st_mode))
    return bad_input("[file] expected a regular file, got something else: {}", path.string());
  std::string out;
  char buf[65536];
  for (;;) {
    const ssize_t n = ::read(f.fd, buf, sizeof buf);
    if (n < 0) {
      if (errno == EINTR) continue;
      return os_error("read", path);
    }
    if (n == 0) return out;
    if (out.size() + static_cast<size_t>(n) > limit)
      return bad_input("[file] expected at most {} bytes, got more: {}", limit, path.string());
    out.append(buf, static_cast<size_t>(n));
  }
}

namespace {

Result<void> write_all(int fd, std::string_view bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return os_error("write", path, ErrorCode::failed);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

Error exists_already(const std::filesystem::path& path) {
  return fail(ErrorCode::failed, "[file] {} exists already and is not overwritten", path.string());
}

// Gives the finished file its name. link() refuses an existing target, which makes "never overwrite" free of races;
// where there are no hard links (FAT, some network shares) the name is claimed by an exclusive open first.
Result<void> publish(const std::filesystem::path& part, const std::filesystem::path& path, bool overwrite) {
  if (!overwrite) {
    if (::link(part.c_str(), path.c_str()) == 0) {
      ::unlink(part.c_str());
      return {};
    }
    if (errno == EEXIST) return exists_already(path);
    if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EMLINK)
      return os_error("write", path, ErrorCode::failed);
    Fd claim{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)};
    if (claim.fd < 0) return errno == EEXIST ? exists_already(path) : os_error("write", path, ErrorCode::failed);
  }
  if (::rename(part.c_str(), path.c_str()) == 0) return {};
  const Error e = os_error("write", path, ErrorCode::failed);
  if (!overwrite) ::unlink(path.c_str());  // our own empty claim
  return e;
}

}  // namespace

Result<PartFile> PartFile::create(const std::filesystem::path& target) {
  static std::atomic<unsigned> counter{0};
  PartFile f;
  f.target_ = target;
  do {  // a crashed program of the same number may have left its part behind
    f.part_ = target.parent_path() / fmt::format(".danqing-part{}-{}", ::getpid(), counter++);
    f.fd_ = ::open(f.part_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (f.fd_ < 0 && errno == EEXIST);
  if (f.fd_ < 0) {
    f.part_.clear();
    return os_error("write", target, ErrorCode::failed);
  }
  return f;
}

PartFile::PartFile(PartFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), part_(std::move(other.part_)), target_(std::move(other.target_)) {
  other.part_.clear();
}

PartFile::~PartFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!part_.empty()) ::unlink(part_.c_str());
}

Result<void> PartFile::write(std::string_view bytes) { return write_all(fd_, bytes, target_); }

Result<void> PartFile::publish(bool overwrite) {
  // Some file systems report a full disk only here.
  if (::close(std::exchange(fd_, -1)) != 0) return os_error("write", target_, ErrorCode::failed);
  if (auto r = danqing::publish(part_, target_, overwrite); !r) return r;
  part_.clear();
  return {};
}

Result<void> write_file(const std::filesystem::path& path, std::string_view bytes, bool overwrite) {
  auto file = PartFile::create(path);
  if (!file) return file.error();
  if (auto r = file->write(bytes); !r) return r;
  return file->publish(overwrite);
}

}  // namespace danqing
