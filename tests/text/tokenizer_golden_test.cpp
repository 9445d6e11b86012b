// Ids of the real tokenizers and of the fixtures' own, exact.
#include "base/file.h"
#include "testing/testing.h"
#include "text/tokenizer.h"

namespace danqing {
namespace {

using testing::data;
using testing::golden;
using testing::Golden;

std::shared_ptr<const Tokenizer> load(const std::filesystem::path& path) {
  auto t = Tokenizer::load(path);
  EXPECT_TRUE(t.ok()) << (t.ok() ? "" : t.error().message);
  return t.ok() ? *t : nullptr;
}

TokenIds slice_of(const TokenIds& ids, const std::vector<int64_t>& offsets, size_t i) {
  return {ids.begin() + offsets[i], ids.begin() + offsets[i + 1]};
}

std::vector<int64_t> offsets_of(const Golden& g, std::string_view name) {
  auto v = read_integers(*g.source, name);
  EXPECT_TRUE(v.ok());
  return v.ok() ? *v : std::vector<int64_t>();
}

void compare(const Tokenizer& tokenizer, const Golden& g, std::string_view ids_name, std::string_view offsets_name) {
  auto strings = read_json(data("fixtures/tokenizers/golden/strings.json"));
  ASSERT_TRUE(strings.ok());
  const TokenIds all = g.ids(ids_name);
  const std::vector<int64_t> offsets = offsets_of(g, offsets_name);
  ASSERT_EQ(strings->size(), 300u);
  ASSERT_EQ(offsets.size(), 301u);
  for (size_t i = 0; i < 300; ++i) {
    DQ_ASSERT_OK(const TokenIds got, tokenizer.encode((*strings)[i].get<std::string>(), false));
    EXPECT_EQ(got, slice_of(all, offsets, i)) << "string " << i;
  }
}

TEST(TokenizerGolden, Qwen3) {
  const auto t = load(data("tokenizers/qwen3"));
  ASSERT_TRUE(t);
  compare(*t, golden("tokenizers/golden/qwen3"), "ids", "offsets");
  EXPECT_EQ(t->vocab_size(), 151669);
  EXPECT_FALSE(t->bos_id());
  EXPECT_EQ(t->eos_id(), 151645);
  EXPECT_EQ(t->pad_id(), 151643);
  EXPECT_EQ(t->model_max_length(), 131072);
  EXPECT_EQ(t->id_of("<think>"), 151667);
  EXPECT_FALSE(t->is_special(151667));
  EXPECT_TRUE(t->is_special(151645));
}

TEST(TokenizerGolden, Tekken) {
  const auto t = load(data("tokenizers/tekken"));
  ASSERT_TRUE(t);
  compare(*t, golden("tokenizers/golden/tekken"), "hf_ids", "hf_offsets");
  EXPECT_EQ(t->vocab_size(), 131072);
  EXPECT_EQ(t->bos_id(), 1);
  EXPECT_EQ(t->eos_token(), "</s>");
  EXPECT_FALSE(t->model_max_length()) << "1e30 means no limit";
}

TEST(TokenizerGolden, TekkenWithoutSpecialTokensInText) {
  const testing::TempDir dir;
  std::filesystem::copy_file(data("tokenizers/tekken/tokenizer.json"), dir / "tokenizer.json");
  auto config = read_json(data("tokenizers/tekken/tokenizer_config.json"));
  ASSERT_TRUE(config.ok());
  (*config)["split_special_tokens"] = true;
  ASSERT_TRUE(write_file(dir / "tokenizer_config.json", dump_json(*config)).ok());
  const auto t = load(dir.path());
  ASSERT_TRUE(t);
  compare(*t, golden("tokenizers/golden/tekken"), "ids", "offsets");
}

TEST(TokenizerGolden, DecodesWhatItEncoded) {
  // decode_equals_nfc_input of the golden: all 300; the reference computed that, and Tekken does not normalise.
  const auto t = load(data("tokenizers/tekken"));
  ASSERT_TRUE(t);
  auto strings = read_json(data("fixtures/tokenizers/golden/strings.json"));
  ASSERT_TRUE(strings.ok());
  for (const Json& s : *strings) {
    const auto text = s.get<std::string>();
    DQ_ASSERT_OK(const TokenIds ids, t->encode(text, false));
    EXPECT_EQ(t->decode(ids, false), text);
    std::string bytes;
    for (const int32_t id : ids) bytes += t->token_bytes(id);
    EXPECT_EQ(bytes, text);
  }
}

TEST(TokenizerGolden, ErnieTinyPrompts) {
  const auto t = load(data("fixtures/ernie-tiny/tokenizer"));
  ASSERT_TRUE(t);
  const Golden g = golden("ernie-tiny/golden/tokens");
  int cases = 0;
  for (const auto& [name, prompt] : g.json["prompts"].items()) {
    DQ_ASSERT_OK(const TokenIds ids, t->encode(prompt.get<std::string>(), true, true));
    EXPECT_EQ(ids, g.ids("ids." + name)) << name;
    EXPECT_EQ(t->decode(ids, true), g.json["decoded"][name].get<std::string>()) << name;
    ++cases;
  }
  EXPECT_EQ(cases, 10);
}

TEST(TokenizerGolden, ErnieTinyGeneratedText) {
  const auto t = load(data("fixtures/ernie-tiny/pe_tokenizer"));
  ASSERT_TRUE(t);
  const Golden g = golden("ernie-tiny/golden/pe");
  for (const auto& [name, c] : g.json["cases"].items()) {
    // The pipeline strips white space at both ends, which generated text of these cases does not have inside a word.
    std::string got = t->decode(g.ids(name + ".greedy_ids"), true);
    got.erase(0, got.find_first_not_of(" \n\r\t"));
    got.erase(got.find_last_not_of(" \n\r\t") + 1);
    EXPECT_EQ(got, c["greedy_text"].get<std::string>()) << name;
  }
}

TEST(TokenizerGolden, Qwen3ChatTruncatedAtItsLimit) {
  const testing::TempDir dir;
  std::filesystem::copy_file(data("tokenizers/qwen3/tokenizer.json"), dir / "tokenizer.json");
  auto config = read_json(data("tokenizers/qwen3/tokenizer_config.json"));
  ASSERT_TRUE(config.ok());
  (*config)["model_max_length"] = 512;  // the golden was cut there
  ASSERT_TRUE(write_file(dir / "tokenizer_config.json", dump_json(*config)).ok());
  const auto t = load(dir.path());
  ASSERT_TRUE(t);
  const Golden g = golden("tokenizers/golden/qwen3_chat");
  const TokenIds all = g.ids("ids");
  const std::vector<int64_t> offsets = offsets_of(g, "offsets");
  const Json& rendered = g.json["rendered"];
  ASSERT_EQ(rendered.size(), 41u);
  ASSERT_EQ(offsets.size(), 42u);
  for (size_t i = 0; i < rendered.size(); ++i) {
    DQ_ASSERT_OK(const TokenIds ids, t->encode(rendered[i].get<std::string>(), true, true));
    EXPECT_EQ(ids, slice_of(all, offsets, i)) << i;
  }
}

TEST(TokenizerGolden, MiniModelPutsOneBeginningOfText) {
  const auto t = load(testing::mini_model() / "tokenizer");
  ASSERT_TRUE(t);
  DQ_ASSERT_OK(const TokenIds ids, t->encode("a red apple", true, true));
  ASSERT_GE(ids.size(), 2u);
  EXPECT_EQ(ids[0], t->bos_id());
  EXPECT_NE(ids[1], t->bos_id());
  EXPECT_EQ(t->decode(ids, true), "a red apple");
  EXPECT_EQ(t->model_max_length(), 512);
}

}  // namespace
}  // namespace danqing
