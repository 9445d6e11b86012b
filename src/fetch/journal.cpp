#include "fetch/journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"

namespace danqing::fetch {
namespace {

// The file: one line of JSON, then a line of fixed length for each segment: bytes written and bytes that are on the
// disk for certain. Lines are replaced in place, so that a note costs one small write.
constexpr size_t kNote = 42;                   // "%020u %020u\n"
constexpr uint64_t kSyncEvery = 256ull << 20;  // what a power cut may cost

Error disk_error(const char* what, const std::filesystem::path& path) {
  return fail(ErrorCode::failed, "[pull] cannot {} {}: {}", what, path.string(), std::strerror(errno));
}

Result<void> write_at(int fd, uint64_t offset, std::string_view bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return disk_error("write", path);
    bytes.remove_prefix(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return {};
}

/// Changes with every start of the machine.
std::string boot_id() {
  const auto text = read_text("/proc/sys/kernel/random/boot_id", 4096);
  return text ? text->substr(0, text->find('\n')) : "";
}

std::vector<Segment> cut(uint64_t size, uint64_t each) {
  std::vector<Segment> out;
  for (uint64_t at = 0; at < size; at += each) out.push_back({{at, std::min(size, at + each)}, 0});
  return out;
}

bool same_file(const Json& j, const JournalKey& key) {
  const auto text = [&](const char* k) {
    const auto it = j.find(k);
    return it != j.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  const auto size = j.find("size");
  if (size == j.end() || !size->is_number_unsigned() || size->get<uint64_t>() != key.size) return false;
  // A known hash says enough: the same file from a mirror goes on too.
  if (!key.sha256.empty()) return text("sha256") == key.sha256;
  if (!key.git_sha1.empty()) return text("git_sha1") == key.git_sha1;
  return text("url") == shown_url(key.url) && !text("etag").empty();
}

}  // namespace

std::filesystem::path Journal::path_of(const std::filesystem::path& part) { return part.string() + ".journal"; }

void Journal::remove(const std::filesystem::path& part) {
  std::error_code ec;
  std::filesystem::remove(part, ec);
  std::filesystem::remove(path_of(part), ec);
}

Result<std::unique_ptr<Journal>> Journal::open(const std::filesystem::path& part, const JournalKey& key,
                                               uint64_t segment) {
  std::unique_ptr<Journal> j(new Journal);
  j->part_ = part;
  j->key_ = key;
  j->segment_bytes_ = std::max<uint64_t>(1, segment);
  j->data_ = ::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (j->data_ < 0) return disk_error("write", part);
  const auto notes = path_of(part);
  j->notes_ = ::open(notes.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (j->notes_ < 0) return disk_error("write", notes);
  if (j->load()) {
    j->resumed_ = j->done() > 0;
    DQ_CHECK(j->write_head());  // the boot of now
    return j;
  }
  j->segments_ = cut(key.size, j->segment_bytes_);
  DQ_CHECK(j->reset(false));
  return j;
}

Journal::~Journal() {
  if (data_ >= 0) ::close(data_);
  if (notes_ >= 0) ::close(notes_);
}

bool Journal::load() {
  const auto text = read_text(path_of(part_), 64 << 20);
  if (!text) return false;
  const size_t line = text->find('\n');
  if (line == std::string::npos) return false;
  const auto json = parse_json(std::string_view(*text).substr(0, line), "journal");
  if (!json || !json->is_object() || !same_file(*json, key_)) return false;
  const auto cut_at = json->find("segment"), boot = json->find("boot"), etag = json->find("etag");
  if (cut_at == json->end() || !cut_at->is_number_unsigned() || cut_at->get<uint64_t>() == 0) return false;
  segment_bytes_ = cut_at->get<uint64_t>();
  if (key_.size / segment_bytes_ > 1'000'000) return false;
  segments_ = cut(key_.size, segment_bytes_);
  const bool same_boot = boot != json->end() && boot->is_string() && *boot == boot_id() && !boot_id().empty();
  if (etag != json->end() && etag->is_string()) key_.etag = etag->get<std::string>();
  struct stat st {};
  if (::fstat(data_, &st) != 0) return false;
  const auto there = static_cast<uint64_t>(st.st_size);
  synced_.assign(segments_.size(), 0);
  for (size_t i = 0; i < segments_.size(); ++i) {
    const std::string_view note = std::string_view(*text).substr(std::min(text->size(), line + 1 + i * kNote), kNote);
    // Notes of segments that were never begun are not there.
    if (note.size() != kNote || note[20] != ' ' || note[41] != '\n') continue;
    uint64_t numbers[2] = {0, 0};
    bool good = true;
    for (int k = 0; k < 2; ++k)
      for (const char c : note.substr(static_cast<size_t>(k) * 21, 20)) {
        good &= c >= '0' && c <= '9';
        numbers[k] = numbers[k] * 10 + static_cast<uint64_t>(c - '0');
      }
    if (!good) continue;
    Segment& s = segments_[i];
    synced_[i] = std::min(numbers[1], s.range.size());
    s.done = same_boot ? std::min(numbers[0], s.range.size()) : synced_[i];
    if (s.range.begin + s.done > there) s.done = there > s.range.begin ? there - s.range.begin : 0;
    synced_[i] = std::min(synced_[i], s.done);
  }
  return true;
}

Result<void> Journal::write_head() {
  const Json head = {{"danqing", "pull journal 1"}, {"size", key_.size},          {"sha256", key_.sha256},
                     {"git_sha1", key_.git_sha1},   {"url", shown_url(key_.url)}, {"etag", key_.etag},
                     {"segment", segment_bytes_},   {"boot", boot_id()}};
  std::string text = dump_json(head) + "\n";
  head_bytes_ = text.size();
  for (size_t i = 0; i < segments_.size(); ++i) text += fmt::format("{:020} {:020}\n", segments_[i].done, synced_[i]);
  // The head's length may change, so the whole small file is replaced.
  const auto path = path_of(part_);
  DQ_CHECK(write_file(path, text));
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return disk_error("write", path);
  ::close(notes_);
  notes_ = fd;
  return {};
}

Result<void> Journal::note(size_t i) {
  return write_at(notes_, head_bytes_ + i * kNote, fmt::format("{:020} {:020}\n", segments_[i].done, synced_[i]),
                  path_of(part_));
}

std::vector<Segment> Journal::segments() const {
  const std::lock_guard lock(mutex_);
  return segments_;
}

uint64_t Journal::done() const {
  const std::lock_guard lock(mutex_);
  uint64_t n = 0;
  for (const Segment& s : segments_) n += s.done;
  return n;
}

Result<void> Journal::set_etag(const std::string& etag) {
  const std::lock_guard lock(mutex_);
  if (etag == key_.etag) return {};
  key_.etag = etag;
  return write_head();
}

Result<void> Journal::write(size_t i, std::span<const std::byte> bytes) {
  uint64_t offset = 0;
  {
    const std::lock_guard lock(mutex_);
    offset = segments_[i].range.begin + segments_[i].done;
    if (bytes.size() > segments_[i].range.size() - segments_[i].done)
      return fail(ErrorCode::failed, "[internal] more bytes than the segment has");
  }
  // Only one thread writes a segment; data first, then the note.
  DQ_CHECK(write_at(data_, offset, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, part_));
  const std::lock_guard lock(mutex_);
  segments_[i].done += bytes.size();
  unsynced_ += bytes.size();
  if (unsynced_ < kSyncEvery) return note(i);
  if (::fdatasync(data_) != 0) return disk_error("write", part_);
  unsynced_ = 0;
  for (size_t k = 0; k < segments_.size(); ++k) {
    if (synced_[k] == segments_[k].done) continue;
    synced_[k] = segments_[k].done;
    DQ_CHECK(note(k));
  }
  return {};
}

Result<void> Journal::reset(bool one) {
  const std::lock_guard lock(mutex_);
  if (one) segment_bytes_ = std::max<uint64_t>(1, key_.size);
  segments_ = cut(key_.size, segment_bytes_);
  synced_.assign(segments_.size(), 0);
  key_.etag.clear();
  unsynced_ = 0;
  DQ_CHECK(write_head());  // before the data goes: a kill between the two must not leave notes of bytes that are gone
  if (::ftruncate(data_, 0) != 0) return disk_error("write", part_);
  return {};
}

Result<void> Journal::sync() {
  if (::fsync(data_) != 0) return disk_error("write", part_);
  return {};
}

uint64_t Journal::present(const std::filesystem::path& part, const JournalKey& key) {
  Journal j;
  j.part_ = part;
  j.key_ = key;
  j.data_ = ::open(part.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  return j.data_ >= 0 && j.load() ? j.done() : 0;
}

}  // namespace danqing::fetch
