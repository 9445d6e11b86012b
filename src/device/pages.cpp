#include "device/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/try.h"

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

namespace danqing::pages {
namespace {

uintptr_t page_size() {
  static const auto size = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

struct Range {
  uintptr_t begin, end;
  size_t bytes() const { return end - begin; }
  void* data() const { return reinterpret_cast<void*>(begin); }
};

/// Reads a byte of every page.
void touch(const Range& r) {
  for (uintptr_t at = r.begin; at < r.end; at += page_size()) (void)*reinterpret_cast<const volatile std::byte*>(at);
}

}  // namespace

Result<void> bring(std::span<const std::byte> mapped, std::string_view what) {
  if (mapped.empty()) return {};
  const auto first = reinterpret_cast<uintptr_t>(mapped.data()), page = page_size();
  const Range r{first / page * page, (first + mapped.size() + page - 1) / page * page};
#ifdef __linux__
  constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ; older headers do not have it
  while (::madvise(r.data(), r.bytes(), kPopulateRead) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno == EFAULT || errno == EIO || errno == EHWPOISON)
      return bad_input("[weights] expected {} in its file, got a file that has become shorter or cannot be read", what);
    touch(r);  // a kernel without it
    break;
  }
#else
  ::posix_madvise(r.data(), r.bytes(), POSIX_MADV_WILLNEED);
  touch(r);
#endif
  return {};
}

void drop(std::span<const std::byte> mapped) {
#ifdef __linux__
  const auto first = reinterpret_cast<uintptr_t>(mapped.data()), page = page_size();
  const Range r{(first + page - 1) / page * page, (first + mapped.size()) / page * page};
  if (r.begin < r.end) ::madvise(r.data(), r.bytes(), MADV_DONTNEED);
#else
  (void)mapped;  // elsewhere it would be a hint at best; the system takes clean pages back when it needs them
#endif
}

AddressRange::AddressRange(size_t bytes) {
  const uintptr_t page = page_size();
  const size_t wanted = (bytes / page + 1) * page;
  void* p = ::mmap(nullptr, wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p != MAP_FAILED) {
    base_ = p;
    reserved_ = wanted;
  } else {
    base_ = reinterpret_cast<void*>(page);  // addresses are limited here: these are never used
  }
}

AddressRange::~AddressRange() {
  if (reserved_) ::munmap(base_, reserved_);
}

}  // namespace danqing::pages
