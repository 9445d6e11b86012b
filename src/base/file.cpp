#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

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
  Fd f{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
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

Result<std::string> read_text(const std::filesystem::path& path, size_t limit) {
  Fd f{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (f.fd < 0) return os_error("open", path);
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

Result<void> write_file(const std::filesystem::path& path, std::string_view bytes, bool overwrite) {
  static std::atomic<unsigned> counter{0};
  std::filesystem::path tmp = path;
  tmp += fmt::format(".part{}-{}", ::getpid(), counter++);
  Fd f{::open(tmp.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)};
  if (f.fd < 0) return os_error("write", path, ErrorCode::failed);
  const char* p = bytes.data();
  size_t left = bytes.size();
  while (left > 0) {
    const ssize_t n = ::write(f.fd, p, left);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const Error e = os_error("write", path, ErrorCode::failed);
      ::unlink(tmp.c_str());
      return e;
    }
    p += n;
    left -= static_cast<size_t>(n);
  }
  // link() refuses an existing target, which makes "never overwrite" free of races; rename() replaces it.
  const int rc = overwrite ? ::rename(tmp.c_str(), path.c_str()) : ::link(tmp.c_str(), path.c_str());
  if (rc != 0) {
    const bool exists = !overwrite && errno == EEXIST;
    const Error e = exists ? fail(ErrorCode::failed, "[file] {} exists already and is not overwritten", path.string())
                           : os_error("write", path, ErrorCode::failed);
    ::unlink(tmp.c_str());
    return e;
  }
  if (!overwrite) ::unlink(tmp.c_str());
  return {};
}

}  // namespace danqing
