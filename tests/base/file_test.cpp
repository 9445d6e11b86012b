// Writing leaves the whole file or none; reading refuses what is no file.
#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <thread>

#include "testing/testing.h"

namespace danqing {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const fs::path& dir) {
  std::vector<std::string> out;
  for (const auto& e : fs::directory_iterator(dir)) out.push_back(e.path().filename());
  std::sort(out.begin(), out.end());
  return out;
}

TEST(WriteFile, WritesAndReplaces) {
  const testing::TempDir dir;
  const std::string big(3 << 20, 'x');
  for (const std::string& bytes : {std::string("first"), std::string(), big, std::string("a\0b", 3)}) {
    ASSERT_TRUE(write_file(dir / "f", bytes).ok());
    DQ_ASSERT_OK(const std::string got, read_text(dir / "f"));
    EXPECT_EQ(got, bytes);
    EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"f"});
  }
}

TEST(WriteFile, NeverOverwritesUnasked) {
  const testing::TempDir dir;
  ASSERT_TRUE(write_file(dir / "f", "old", false).ok());
  const auto again = write_file(dir / "f", "new", false);
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.error().message.find("exists already"), std::string::npos);
  EXPECT_EQ(*read_text(dir / "f"), "old");
  EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"f"});
}

TEST(WriteFile, OneOfManyWritersWins) {
  const testing::TempDir dir;
  std::atomic<int> won{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back(
        [&, i] { won += write_file(dir / "f", std::string(1000, static_cast<char>('a' + i)), false).ok(); });
  for (auto& t : threads) t.join();
  EXPECT_EQ(won, 1);
  DQ_ASSERT_OK(const std::string got, read_text(dir / "f"));
  EXPECT_EQ(got, std::string(1000, got[0]));
  EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"f"});
}

TEST(WriteFile, FailureLeavesNothing) {
  const testing::TempDir dir;
  EXPECT_FALSE(write_file(dir / "no/such/folder/f", "x").ok());
  fs::create_directory(dir / "folder");
  EXPECT_FALSE(write_file(dir / "folder", "x").ok());
  EXPECT_FALSE(write_file(dir / "folder", "x", false).ok());
  EXPECT_FALSE(write_file(dir / std::string(300, 'n'), "x").ok());
  EXPECT_FALSE(write_file(dir / "f" / "g", "x").ok());
  EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"folder"});
}

TEST(WriteFile, FullDiskLeavesTheOldFile) {
  const testing::TempDir dir;
  ASSERT_TRUE(write_file(dir / "f", "old").ok());
  // A limit on the file size makes write() fail in the middle, as a full disk does.
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{100000, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto r = write_file(dir / "f", std::string(1 << 20, 'x'));
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::failed);
  EXPECT_NE(r.error().message.find((dir / "f").string()), std::string::npos);
  EXPECT_EQ(*read_text(dir / "f"), "old");
  EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"f"});
}

TEST(WriteFile, RelativeNameWithoutFolder) {
  const testing::TempDir dir;
  const fs::path before = fs::current_path();
  fs::current_path(dir.path());
  const bool ok = write_file("plain", "x", false).ok();
  fs::current_path(before);
  EXPECT_TRUE(ok);
  EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"plain"});
}

TEST(ReadText, LimitAndErrors) {
  const testing::TempDir dir;
  ASSERT_TRUE(write_file(dir / "f", std::string(1000, 'x')).ok());
  EXPECT_TRUE(read_text(dir / "f", 1000).ok());
  EXPECT_FALSE(read_text(dir / "f", 999).ok());
  EXPECT_FALSE(read_text("/dev/zero", 1 << 20).ok());
  EXPECT_FALSE(read_text(dir.path()).ok());
  EXPECT_FALSE(read_text(dir / "absent").ok());
}

TEST(MappedFileOpen, RegularFilesOnly) {
  const testing::TempDir dir;
  ASSERT_TRUE(write_file(dir / "f", "abc").ok());
  ASSERT_TRUE(write_file(dir / "empty", "").ok());
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  DQ_ASSERT_OK(const auto f, MappedFile::open(dir / "f"));
  EXPECT_EQ(f->bytes().size(), 3u);
  EXPECT_EQ(f->bytes()[2], std::byte{'c'});
  DQ_ASSERT_OK(const auto empty, MappedFile::open(dir / "empty"));
  EXPECT_TRUE(empty->bytes().empty());
  for (const fs::path& bad : {dir.path(), dir / "pipe", dir / "absent", fs::path("/dev/null")}) {
    const auto r = MappedFile::open(bad);
    ASSERT_FALSE(r.ok()) << bad;
    EXPECT_NE(r.error().message.find(bad.string()), std::string::npos);
  }
}

}  // namespace
}  // namespace danqing
