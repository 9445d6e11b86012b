// What a journal believes of what lies on the disk.
#include "fetch/journal.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "testing/testing.h"

namespace danqing::fetch {
namespace {

namespace fs = std::filesystem;

class JournalTest : public ::testing::Test {
 protected:
  std::unique_ptr<Journal> open(uint64_t segment = 40) {
    auto j = Journal::open(part, key, segment);
    EXPECT_TRUE(j) << j.error().message;
    return j ? std::move(*j) : nullptr;
  }
  void write(Journal& j, size_t segment, size_t n) {
    const std::string text(n, 'x');
    ASSERT_TRUE(j.write(segment, std::as_bytes(std::span(text))));
  }
  testing::TempDir dir;
  fs::path part = dir.path() / "a.part";
  JournalKey key{.size = 100, .sha256 = std::string(64, 'a'), .git_sha1 = {}, .url = "http://h/a", .etag = {}};
};

TEST_F(JournalTest, GoesOnWhereItWas) {
  {
    auto j = open();
    EXPECT_EQ(j->segments().size(), 3u);
    EXPECT_FALSE(j->resumed());
    write(*j, 0, 40);
    write(*j, 2, 7);
    const std::string more(41, 'x');
    EXPECT_FALSE(j->write(1, std::as_bytes(std::span(more))));
  }
  auto j = open(10);  // the cut of the first run stays
  EXPECT_TRUE(j->resumed());
  EXPECT_EQ(j->done(), 47u);
  EXPECT_TRUE(j->segments()[0].complete());
  EXPECT_EQ(j->segments()[2].done, 7u);
  EXPECT_EQ(Journal::present(part, key), 47u);
}

TEST_F(JournalTest, IsOfOneFileOnly) {
  {
    auto j = open();
    write(*j, 0, 40);
  }
  key.sha256[0] = 'b';
  EXPECT_EQ(Journal::present(part, key), 0u);
  EXPECT_EQ(open()->done(), 0u);
  EXPECT_EQ(fs::file_size(part), 0u);
}

TEST_F(JournalTest, WithoutAHashTheETagMustBeKnown) {
  key.sha256.clear();
  {
    auto j = open();
    write(*j, 0, 40);
  }
  EXPECT_EQ(open()->done(), 0u);  // nothing says that the server still has the same file
  {
    auto j = open();
    ASSERT_TRUE(j->set_etag("\"1\""));
    write(*j, 0, 40);
  }
  EXPECT_EQ(open()->done(), 40u);
  EXPECT_EQ(open()->etag(), "\"1\"");
}

TEST_F(JournalTest, AfterAPowerCutOnlyWhatTheDiskHasForCertain) {
  {
    auto j = open();
    write(*j, 0, 40);
  }
  auto text = *read_text(Journal::path_of(part));
  const size_t at = text.find("\"boot\":\"") + 8;
  text[at] = text[at] == '0' ? '1' : '0';
  ASSERT_TRUE(write_file(Journal::path_of(part), text));
  EXPECT_EQ(open()->done(), 0u);
}

TEST_F(JournalTest, BelievesNoMoreThanThePartHolds) {
  {
    auto j = open();
    write(*j, 0, 40);
    write(*j, 1, 40);
  }
  fs::resize_file(part, 50);
  const auto j = open();
  EXPECT_EQ(j->done(), 50u);
}

TEST_F(JournalTest, DamagedNotesAreNotBelieved) {
  {
    auto j = open();
    write(*j, 0, 40);
  }
  const auto good = *read_text(Journal::path_of(part));
  for (size_t i = 0; i < good.size(); i += 3)
    for (const char c : {'\0', 'x', '9', '\n'}) {
      auto bad = good;
      bad[i] = c;
      ASSERT_TRUE(write_file(Journal::path_of(part), bad));
      const auto present = Journal::present(part, key);
      EXPECT_LE(present, 40u) << i;
    }
  ASSERT_TRUE(write_file(Journal::path_of(part), good.substr(0, good.size() / 2)));
  EXPECT_EQ(Journal::present(part, key), 0u);
}

TEST_F(JournalTest, ALinkInPlaceOfThePartIsRefused) {
  const fs::path precious = dir.path() / "precious";
  std::ofstream(precious) << "text";
  fs::create_symlink(precious, part);
  EXPECT_FALSE(Journal::open(part, key, 40));
  EXPECT_EQ(*read_text(precious), "text");
}

}  // namespace
}  // namespace danqing::fetch
