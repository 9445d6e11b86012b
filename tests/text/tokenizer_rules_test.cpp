// The rules of tokenizer.json one by one. The expected tokens were computed with the tokenizers library, version
// 0.23.3, from the same small tokenizer.
#include "text/small_tokenizer.h"

namespace danqing {
namespace {

using testing::added;
using testing::load_tokenizer;
using testing::small_tokenizer;
using testing::tokens_of;

TEST(TokenizerRules, MergesByRankThenFromTheLeft) {
  EXPECT_EQ(tokens_of(small_tokenizer(), "aaaaaaa abc a aabc"), "aaaa|aa|a| a|bc| a| |aa|bc");
  Json pairs = small_tokenizer();
  for (Json& m : pairs["model"]["merges"]) {
    const auto text = m.get<std::string>();
    m = {text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)};
  }
  EXPECT_EQ(tokens_of(pairs, "aaaaaaa abc a aabc"), "aaaa|aa|a| a|bc| a| |aa|bc");
}

TEST(TokenizerRules, IgnoreMergesTakesWholeWords) {
  Json j = small_tokenizer();
  j["model"]["vocab"]["xyz"] = 261;
  EXPECT_EQ(tokens_of(j, "xyz"), "x|y|z");
  j["model"]["ignore_merges"] = true;
  EXPECT_EQ(tokens_of(j, "xyz"), "xyz");
  EXPECT_EQ(tokens_of(j, "xyza"), "x|y|z|a");
}

TEST(TokenizerRules, AddedTokens) {
  struct Case {
    Json flags;
    std::string text, expected;
  };
  const Case cases[] = {
      {{}, "x <m> y<m>z", "x| |<m>| |y|<m>|z"},
      {{{"single_word", true}}, "a<m> <m>b <m> .<m>. _<m>", "a|<|m|>| |<|m|>|b| |<m>| |.|<m>|.| |_|<|m|>"},
  };
  for (const Case& c : cases) {
    Json j = small_tokenizer();
    j["added_tokens"] = Json::array({added(261, "<m>", c.flags.is_null() ? Json::object() : c.flags)});
    EXPECT_EQ(tokens_of(j, c.text), c.expected);
  }
}

TEST(TokenizerRules, AddedTokensTakeWhiteSpace) {
  const auto ids = [](const Json& flags, const std::string& text) {
    Json j = small_tokenizer();
    j["added_tokens"] = Json::array({added(261, "<m>", flags)});
    auto t = load_tokenizer(j);
    EXPECT_TRUE(t.ok());
    auto r = (*t)->encode(text, false);
    return r.ok() ? *r : TokenIds();
  };
  EXPECT_EQ(ids({{"lstrip", true}}, "x  <m> y<m> \n<m>"), (TokenIds{'x', 261, ' ', 'y', 261, 261}));
  EXPECT_EQ(ids({{"rstrip", true}}, "x <m>  y<m> <m> "), (TokenIds{'x', ' ', 261, 'y', 261, 261}));
  EXPECT_EQ(ids({{"lstrip", true}, {"rstrip", true}}, "a <m>  <m> b"), (TokenIds{'a', 261, 261, 'b'}));
}

TEST(TokenizerRules, AddedTokensLeftmostThenLongest) {
  Json j = small_tokenizer();
  j["added_tokens"] = {added(261, "<a"), added(262, "<ab>"), added(263, "b>c")};
  EXPECT_EQ(tokens_of(j, "<ab>c<abx"), "<ab>|c|<a|b|x");
}

TEST(TokenizerRules, NormalizedTokensAreFoundInNormalizedText) {
  Json j = small_tokenizer();
  j["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array({{{"type", "NFC"}}})}};
  j["added_tokens"] = {added(261, "\u1ec7", {{"normalized", true}, {"special", false}}), added(262, "e\u0323\u0302x")};
  DQ_ASSERT_OK(const auto t, load_tokenizer(j));
  DQ_ASSERT_OK(const TokenIds ids, t->encode("e\u0302\u0323 \u1ec7 e\u0323\u0302x", false));
  EXPECT_EQ(ids, (TokenIds{261, ' ', 261, ' ', 262}));
}

TEST(TokenizerRules, SplitBehaviours) {
  struct Case {
    const char* behavior;
    bool invert;
    std::string expected;
  };
  const Case cases[] = {{"Isolated", false, "a|a|x|a|a|a|a|a|bc| |a|a|y"},
                        {"Removed", false, "x|bc| |y"},
                        {"Removed", true, "a|a|a|a|a|a|a|a|a"},
                        {"MergedWithPrevious", false, "a|a|x|a|a|a|a|a|bc| a|a|y"},
                        {"MergedWithPrevious", true, "a|a|x|a|a|a|a|abc| |a|a|y"},
                        {"MergedWithNext", false, "a|a|x|a|a|a|a|abc| |a|a|y"},
                        {"MergedWithNext", true, "a|a|x|a|a|a|a|a|bc| a|a|y"},
                        {"Contiguous", false, "aa|x|aaaa|a|bc| |aa|y"}};
  for (const Case& c : cases) {
    Json j = small_tokenizer();
    const Json split = {
        {"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", c.behavior}, {"invert", c.invert}};
    j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, j["pre_tokenizer"]}}};
    EXPECT_EQ(tokens_of(j, "aaxaaaaabc aay"), c.expected) << c.behavior << c.invert;
  }
}

TEST(TokenizerRules, ByteLevelWithItsOwnPatternAndSpace) {
  Json j = small_tokenizer();
  j["pre_tokenizer"] = {{"type", "ByteLevel"}};  // both options are on by default
  EXPECT_EQ(tokens_of(j, "aa a  abc's a"), " |aa| a| | a|bc|'|s| a");
  EXPECT_EQ(tokens_of(j, " aa"), " |aa");
}

TEST(TokenizerRules, UnknownCharacters) {
  Json j = small_tokenizer();
  j["pre_tokenizer"] = nullptr;
  j["model"]["vocab"] = {{"a", 0}, {"b", 1}, {"ab", 2}, {"<u>", 3}, {"<0xE4>", 4}, {"<0xBD>", 5}, {"<0xA0>", 6}};
  j["model"]["merges"] = Json::array({"a b"});
  const auto ids = [&](const std::string& text) {
    auto t = load_tokenizer(j);
    EXPECT_TRUE(t.ok()) << (t.ok() ? "" : t.error().message);
    auto r = (*t)->encode(text, false);
    return r.ok() ? *r : TokenIds();
  };
  j["model"]["unk_token"] = "<u>";
  EXPECT_EQ(ids("abxyab你好z"), (TokenIds{2, 3, 3, 2, 3, 3, 3}));
  j["model"]["fuse_unk"] = true;
  EXPECT_EQ(ids("abxyab你好z"), (TokenIds{2, 3, 2, 3}));
  j["model"]["byte_fallback"] = true;
  EXPECT_EQ(ids("abx你好ab"), (TokenIds{2, 4, 5, 6, 3, 2}));
  j["model"]["unk_token"] = nullptr;
  EXPECT_EQ(ids("abx你yab"), (TokenIds{2, 4, 5, 6, 2}));
}

TEST(TokenizerRules, DecodesIncompleteCharacters) {
  DQ_ASSERT_OK(const auto t, load_tokenizer(small_tokenizer()));
  EXPECT_EQ(t->decode(TokenIds{0xe4, 0xbd, 97, 0xa0, 0xff, 256}, false), "\uFFFDa\uFFFD\uFFFDaa");
  EXPECT_EQ(t->decode(TokenIds{0xe4, 0xbd, 0xa0}, false), "你");
  EXPECT_EQ(t->decode(TokenIds{'a', -5, 99999, 'b'}, false), "ab") << "unknown ids are skipped";
  EXPECT_EQ(t->token_bytes(0xe4), "\xe4");
  EXPECT_EQ(t->token_bytes(99999), "");
}

TEST(TokenizerRules, InvalidUtf8AndNul) {
  DQ_ASSERT_OK(const auto t, load_tokenizer(small_tokenizer()));
  // Table 3-8 of the Unicode standard: one U+FFFD (EF BF BD) per maximal subpart.
  struct Case {
    std::string_view bytes;
    size_t replacements, others;
  };
  const Case cases[] = {{"\xff", 1, 0},
                        {"\xc0\xaf", 2, 0},
                        {"\xed\xa0\x80", 3, 0},
                        {"\xf4\x91\x92\x93", 4, 0},
                        {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf"
                         "A",
                         4, 1},
                        {"\xe4\xbd", 1, 0},
                        {"\xe4\xbd"
                         "a",
                         1, 1}};
  for (const Case& c : cases) {
    DQ_ASSERT_OK(const TokenIds ids, t->encode(c.bytes, false));
    EXPECT_EQ(ids.size(), 3 * c.replacements + c.others);
    EXPECT_EQ(ids[0], 0xEF);
  }
  DQ_ASSERT_OK(const TokenIds nul, t->encode(std::string_view("a\0b", 3), false));
  EXPECT_EQ(nul, (TokenIds{'a', 0, 'b'}));
}

TEST(TokenizerRules, TemplateAndExplicitBeginAndEnd) {
  Json j = small_tokenizer();
  j["added_tokens"] = {added(261, "<s>"), added(262, "</s>")};
  const auto special = [](const char* name) { return Json{{"SpecialToken", {{"id", name}, {"type_id", 0}}}}; };
  const auto ids_of = [](const char* name, int id) {
    return Json{{"id", name}, {"ids", Json::array({id})}, {"tokens", Json::array({name})}};
  };
  const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const Json with_template = {{"type", "TemplateProcessing"},
                              {"single", Json::array({special("<s>"), text})},
                              {"special_tokens", {{"<s>", ids_of("<s>", 261)}}}};
  j["post_processor"] = {{"type", "Sequence"},
                         {"processors", Json::array({Json{{"type", "ByteLevel"}}, with_template})}};
  Json config = {
      {"bos_token", "<s>"}, {"eos_token", {{"content", "</s>"}}}, {"pad_token", "<new>"}, {"model_max_length", 4}};
  const auto ids = [&](bool truncate, std::string_view input = "xyxyxy") {
    auto t = load_tokenizer(j, config);
    EXPECT_TRUE(t.ok()) << (t.ok() ? "" : t.error().message);
    auto r = (*t)->encode(input, true, truncate);
    return r.ok() ? *r : TokenIds();
  };
  EXPECT_EQ(ids(false), (TokenIds{261, 'x', 'y', 'x', 'y', 'x', 'y'}));
  EXPECT_EQ(ids(true), (TokenIds{261, 'x', 'y', 'x'}));
  EXPECT_EQ(ids(true, "<new>"), (TokenIds{261, 263})) << "a named token that is new gets the next id";
  config["add_eos_token"] = true;  // replaces the template; what is not said is false
  EXPECT_EQ(ids(true), (TokenIds{'x', 'y', 'x', 262}));
  config["add_bos_token"] = true;
  EXPECT_EQ(ids(false, ""), (TokenIds{261, 262}));
  config["truncation_side"] = "left";
  EXPECT_EQ(ids(true, "abxyz"), (TokenIds{261, 'y', 'z', 262}));
  config["bos_token"] = nullptr;
  EXPECT_EQ(ids(false, ""), (TokenIds{262})) << "there is nothing to begin with";
}

TEST(TokenizerRules, LongTextsTakeLinearTime) {
  // With a quadratic step any of these would run for hours; CTest would stop it.
  DQ_ASSERT_OK(const auto t, Tokenizer::load(testing::data("tokenizers/qwen3")));
  const auto repeated = [](std::string_view part, size_t bytes) {
    std::string s;
    while (s.size() < bytes) s += part;
    return s;
  };
  const size_t size = 1'000'000;
  std::string marks = "a" + repeated("\u0301", size / 2) + repeated("\u0323", size / 2);
  for (const std::string& text : {repeated("a", size), repeated(" ", size), repeated("猫", size), repeated("\n", size),
                                  marks, repeated("<|im_start|>", size), repeated("<", size), repeated("aB ", size)}) {
    DQ_ASSERT_OK(const TokenIds ids, t->encode(text, false));
    EXPECT_FALSE(ids.empty());
    if (text != marks) {
      EXPECT_TRUE(t->decode(ids, false) == text);
    }
  }
}

}  // namespace
}  // namespace danqing
