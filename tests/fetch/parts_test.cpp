// Addresses, names, hashes and the choice of files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fetch/digest.h"
#include "fetch/select.h"

namespace danqing::fetch {
namespace {

using ::testing::ElementsAre;

TEST(Urls, OriginsCompareAsBrowsersDo) {
  EXPECT_EQ(origin_of("https://Hub.example/a?b"), "https://hub.example:443");
  EXPECT_EQ(origin_of("http://hub.example:8080/"), "http://hub.example:8080");
  EXPECT_NE(origin_of("http://hub.example"), origin_of("https://hub.example"));
  EXPECT_EQ(origin_of("https://a@hub.example/"), "https://hub.example:443");
  for (const char* bad : {"", "hub.example/a", "ftp://hub.example/a", "file:///etc/passwd", "https://"})
    EXPECT_EQ(origin_of(bad), "") << bad;
}

TEST(Urls, WhatIsShownHoldsNoSecret) {
  EXPECT_EQ(shown_url("https://me:secret@hub.example/a/b?token=secret#secret"), "https://hub.example/a/b");
}

TEST(Urls, EncodingGoesThereAndBack) {
  const std::string text = "a b/ü%?#&+.txt";
  EXPECT_EQ(url_encode(text, true), "a%20b/%C3%BC%25%3F%23%26%2B.txt");
  EXPECT_EQ(url_encode("a/b", false), "a%2Fb");
  EXPECT_EQ(url_decode(url_encode(text, false)), text);
  EXPECT_EQ(url_decode("%zz%4"), "%zz%4");
}

TEST(Paths, OnlyPlainOnesAreTaken) {
  for (const char* good : {"a.json", "transformer/a-00001-of-00002.safetensors", "a b/c..d.txt", "中文/文件.json"})
    EXPECT_TRUE(check_remote_path(good)) << good;
  for (const char* bad : {"", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\\b", "c:\\a", "a\nb", "\xff",
                          ".danqing/manifest.json", "a/.danqing-part1", "a.part", "a.part.journal", "a.part/b"})
    EXPECT_FALSE(check_remote_path(bad)) << bad;
  EXPECT_FALSE(check_remote_path(std::string(256, 'a')));
}

TEST(Repositories, AreOwnerAndName) {
  const auto id = parse_repository("owner/na.me-1@refs/pr/3");
  ASSERT_TRUE(id);
  EXPECT_EQ(id->name, "owner/na.me-1");
  EXPECT_EQ(id->revision, "refs/pr/3");
  for (const char* bad : {"", "a", "a/", "/a", "a/b/c", "a/../b", ".a/b", "a/b@", "a/b@../x", "a b/c", "-a/b"})
    EXPECT_FALSE(parse_repository(bad)) << bad;
}

TEST(Digests, AreTheKnownOnes) {
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Digest git(Digest::Kind::git_sha1, 12);  // `printf 'hello world\n' | git hash-object --stdin`
  git.update(std::as_bytes(std::span("hello world\n", 12)));
  EXPECT_EQ(git.hex(), "3b18e512dba79e4c8300dd08aeb37f8e728b8dad");
}

TEST(Digests, GoOnFromAKeptState) {
  const std::string text(1000, 'x');
  for (const Digest::Kind kind : {Digest::Kind::sha256, Digest::Kind::git_sha1})
    for (const size_t cut : {size_t{0}, size_t{1}, size_t{64}, size_t{333}, size_t{1000}}) {
      const auto bytes = std::as_bytes(std::span(text));
      Digest whole(kind, 1000), first(kind, 1000);
      whole.update(bytes);
      first.update(bytes.first(cut));
      auto second = Digest::restore(kind, first.state());
      ASSERT_TRUE(second);
      second->update(bytes.subspan(cut));
      EXPECT_EQ(second->hex(), whole.hex());
    }
  EXPECT_FALSE(Digest::restore(Digest::Kind::sha256, "00"));
  EXPECT_FALSE(Digest::restore(Digest::Kind::sha256, std::string(Digest().state().size(), 'f')));  // 2^32 bytes pending
}

std::vector<RemoteFile> files(std::initializer_list<const char*> names) {
  std::vector<RemoteFile> out;
  for (const char* n : names)
    out.push_back({.path = n, .url = {}, .size = 1, .sha256 = {}, .git_sha1 = {}, .etag = {}});
  return out;
}

std::vector<std::string> chosen(const std::vector<RemoteFile>& all, const Filters& filters = {},
                                const std::optional<Json>& index = {}) {
  const auto s = select_files(all, index, filters);
  std::vector<std::string> out;
  if (s)
    for (const Chosen& c : s->files) out.push_back(c.file.path);
  else
    out.push_back(s.error().message);
  return out;
}

TEST(Selection, ConfigsThenWhatIsNeededFirst) {
  const auto all =
      files({"model_index.json", "pe/model.safetensors", "scheduler/scheduler_config.json",
             "text_encoder/model-00001-of-00002.safetensors", "text_encoder/model-00002-of-00002.safetensors",
             "text_encoder/model.safetensors.index.json", "tokenizer/tokenizer.json",
             "transformer/diffusion_pytorch_model.safetensors", "vae/diffusion_pytorch_model.safetensors"});
  EXPECT_THAT(
      chosen(all),
      ElementsAre("model_index.json", "scheduler/scheduler_config.json", "text_encoder/model.safetensors.index.json",
                  "tokenizer/tokenizer.json", "text_encoder/model-00001-of-00002.safetensors",
                  "text_encoder/model-00002-of-00002.safetensors", "transformer/diffusion_pytorch_model.safetensors",
                  "vae/diffusion_pytorch_model.safetensors", "pe/model.safetensors"));
}

TEST(Selection, OnePerFormatAndWhatThePipelineNames) {
  const auto all = files({"all.safetensors", "assets/a.png", "extra/model.safetensors", "model_index.json",
                          "transformer/model.bin", "transformer/model.fp16.safetensors", "transformer/model.onnx",
                          "transformer/model.safetensors", "transformer/pytorch_model.bin.index.json"});
  const Json index = {{"_class_name", "P"}, {"transformer", {"diffusers", "T"}}};
  EXPECT_THAT(chosen(all, {}, index), ElementsAre("model_index.json", "transformer/model.safetensors"));
  EXPECT_THAT(chosen(all, {.include = {}, .exclude = {}, .variant = "fp16"}, index),
              ElementsAre("model_index.json", "transformer/model.fp16.safetensors"));
  EXPECT_THAT(chosen(all, {.include = {"extra/"}, .exclude = {}, .variant = {}}, index),
              ElementsAre("extra/model.safetensors"));
}

TEST(Selection, VariantsOfShardsGoTogether) {
  const auto all =
      files({"t/m-00001-of-00002.safetensors", "t/m-00002-of-00002.safetensors", "t/m.fp16-00001-of-00002.safetensors",
             "t/m.fp16-00002-of-00002.safetensors", "t/m.safetensors.index.fp16.json", "t/m.safetensors.index.json"});
  EXPECT_THAT(chosen(all), ElementsAre("t/m.safetensors.index.json", "t/m-00001-of-00002.safetensors",
                                       "t/m-00002-of-00002.safetensors"));
  EXPECT_THAT(chosen(all, {.include = {}, .exclude = {}, .variant = "fp16"}),
              ElementsAre("t/m.safetensors.index.fp16.json", "t/m.fp16-00001-of-00002.safetensors",
                          "t/m.fp16-00002-of-00002.safetensors"));
}

TEST(Selection, NamesWithDotsAreNoVariants) {
  EXPECT_THAT(chosen(files({"qwen2.5.safetensors"})), ElementsAre("qwen2.5.safetensors"));
}

}  // namespace
}  // namespace danqing::fetch
