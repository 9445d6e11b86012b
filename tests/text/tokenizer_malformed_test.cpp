// Damaged tokenizer files: each is one clear error, never a crash, a hang or a wrong tokenizer.
#include "text/small_tokenizer.h"

namespace danqing {
namespace {

using testing::load_tokenizer;
using testing::small_tokenizer;

struct Mutation {
  std::string patch;     // RFC 7386 merge patch for the small tokenizer: null removes a member
  const char* expected;  // part of the message
};

void expect_error(const Result<std::shared_ptr<const Tokenizer>>& r, const std::string& name,
                  const std::string& expected) {
  ASSERT_FALSE(r.ok()) << name;
  EXPECT_EQ(r.error().code, ErrorCode::bad_input) << name;
  EXPECT_NE(r.error().message.find(expected), std::string::npos) << name << ": " << r.error().message;
  EXPECT_EQ(r.error().message.find('\n'), std::string::npos) << name;
}

std::string split_patch(const std::string& pattern) {
  const Json split = {{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", pattern}}}};
  return dump_json({{"pre_tokenizer", split}});
}

// Patches that are too long to write down.
std::vector<Mutation> long_mutations() {
  return {{split_patch(std::string(100000, 'a')), "65536"},
          {split_patch(std::string(1000, '(') + std::string(1000, ')')), "regular expression"},
          {R"({"added_tokens": [{"id": 300, "content": ")" + std::string(5000, 'a') + "\"}]}", "5000"}};
}

const std::vector<Mutation>& mutations() {
  static const std::vector<Mutation> all = {
      {R"j({"model": null})j", "model"},
      {R"j({"model": []})j", "model"},
      {R"j({"model": {"type": "Unigram"}})j", "Unigram"},
      {R"j({"model": {"type": 3}})j", "type"},
      {R"j({"model": {"vocab": null}})j", "vocab"},
      {R"j({"model": {"vocab": ["a"]}})j", "vocab"},
      {R"j({"model": {"vocab": 7}})j", "vocab"},
      {R"j({"model": {"vocab": {"a": "97"}}})j", "integer"},
      {R"j({"model": {"vocab": {"a": 9.5}}})j", "integer"},
      {R"j({"model": {"vocab": {"a": {}}}})j", "integer"},
      {R"j({"model": {"vocab": {"a": [1]}}})j", "integer"},
      {R"j({"model": {"vocab": {"a": true}}})j", "integer"},
      {R"j({"model": {"vocab": {"a": -1}}})j", "got -1"},
      {R"j({"model": {"vocab": {"a": 4294967296}}})j", "got 4294967296"},
      {R"j({"model": {"vocab": {"a": 18446744073709551615}}})j", "expected token ids"},
      {R"j({"model": {"vocab": {"a": 99999999999999999999999}}})j", "integer"},
      {R"j({"model": {"vocab": {"new": 97}}})j", "same id 97"},
      {R"j({"model": {"merges": null}})j", "merges"},
      {R"j({"model": {"merges": {}}})j", "merges"},
      {R"j({"model": {"merges": ["a a", "zz a"]}})j", "merge 1 names 'zz'"},
      {R"j({"model": {"merges": ["a zz"]}})j", "'zz'"},
      {R"j({"model": {"merges": ["x y"]}})j", "'xy'"},
      {R"j({"model": {"merges": ["aa"]}})j", "two texts"},
      {R"j({"model": {"merges": ["a a a"]}})j", "two texts"},
      {R"j({"model": {"merges": [["a"]]}})j", "two texts"},
      {R"j({"model": {"merges": [["a", "a", "a"]]}})j", "two texts"},
      {R"j({"model": {"merges": [[1, 2]]}})j", "two texts"},
      {R"j({"model": {"merges": [[["a"], "a"]]}})j", "two texts"},
      {R"j({"model": {"merges": [5]}})j", "two texts"},
      {R"j({"model": {"merges": [{"a": "a"}]}})j", "two texts"},
      {R"j({"model": {"merges": [null]}})j", "two texts"},
      {R"j({"model": {"dropout": 0.1}})j", "dropout"},
      {R"j({"model": {"unk_token": "<none>"}})j", "<none>"},
      {R"j({"model": {"byte_fallback": "yes"}})j", "byte_fallback"},
      {R"j({"model": {"continuing_subword_prefix": 1}})j", "continuing_subword_prefix"},
      {R"j({"normalizer": {"type": "Lowercase"}})j", "Lowercase"},
      {R"j({"normalizer": "NFC"})j", "normalizer"},
      {R"j({"normalizer": {"type": "Sequence"}})j", "normalizers"},
      {R"j({"pre_tokenizer": {"type": "Metaspace"}})j", "Metaspace"},
      {R"j({"pre_tokenizer": {"type": "Sequence", "pretokenizers": 1}})j", "pretokenizers"},
      {R"j({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "ByteLevel"}]}})j",
       "second"},
      {R"j({"pre_tokenizer": {"type": "Split", "behavior": "Sometimes", "pattern": {"Regex": "a"}}})j", "Sometimes"},
      {R"j({"pre_tokenizer": {"type": "Split", "behavior": "Isolated"}})j", "pattern"},
      {R"j({"pre_tokenizer": {"type": "Split", "behavior": "Isolated", "pattern": "a"}})j", "pattern"},
      {R"j({"pre_tokenizer": {"type": "Split", "behavior": "Isolated", "pattern": {"String": ""}}})j", "empty"},
      {R"j({"pre_tokenizer": {"type": "Split", "behavior": "Isolated", "pattern": {"Regex": "(a"}}})j",
       "regular expression"},
      {R"j({"pre_tokenizer": {"type": "Split", "behavior": "Isolated", "pattern": {"Regex": "[a-z&&[aeiou]]"}}})j",
       "cannot read"},
      {R"j({"decoder": {"type": "Metaspace"}})j", "decoder"},
      {R"j({"decoder": 3})j", "decoder"},
      {R"j({"post_processor": {"type": "BertProcessing"}})j", "BertProcessing"},
      {R"j({"post_processor": {"type": "TemplateProcessing", "single": []}})j", "exactly once"},
      {R"j({"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}], "special_tokens": {}}})j",
       "<s>"},
      {R"j({"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}], "special_tokens": {"x": {"ids": [5000]}}}})j",
       "5000"},
      {R"j({"post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B"}}]}})j",
       "exactly once"},
      {R"j({"added_tokens": {"a": 1}})j", "added_tokens"},
      {R"j({"added_tokens": [7]})j", "added_tokens"},
      {R"j({"added_tokens": [{"id": 300}]})j", "content"},
      {R"j({"added_tokens": [{"content": "<s>"}]})j", "id"},
      {R"j({"added_tokens": [{"id": -3, "content": "<s>"}]})j", "-3"},
      {R"j({"added_tokens": [{"id": 2147483647, "content": "<s>"}]})j", "2147483647"},
      {R"j({"added_tokens": [{"id": 97, "content": "<s>"}]})j", "id 97"},
      {R"j({"added_tokens": [{"id": 300, "content": "aa"}]})j", "256 in the vocabulary"},
      {R"j({"added_tokens": [{"id": 300, "content": "<s>"}, {"id": 300, "content": "</s>"}]})j", "same id 300"},
      {R"j({"added_tokens": [{"id": 300, "content": "<s>"}, {"id": 301, "content": "<s>"}]})j", "300 and 301"},
      {R"j({"added_tokens": [{"id": 300, "content": "<s>", "lstrip": 1}]})j", "lstrip"},
  };
  return all;
}

TEST(TokenizerMalformed, Documents) {
  ASSERT_TRUE(load_tokenizer(small_tokenizer()).ok()) << "the unharmed file loads";
  std::vector<Mutation> all = mutations();
  for (Mutation& m : long_mutations()) all.push_back(std::move(m));
  for (const Mutation& m : all) {
    DQ_ASSERT_OK(const Json patch, parse_json(m.patch, "patch"));
    Json j = small_tokenizer();
    j.merge_patch(patch);
    expect_error(load_tokenizer(j), m.patch.substr(0, 100), m.expected);
  }
}

TEST(TokenizerMalformed, Configs) {
  const Mutation cases[] = {
      {R"j([])j", "object"},
      {R"j({"model_max_length": "long"})j", "model_max_length"},
      {R"j({"model_max_length": -1})j", "model_max_length"},
      {R"j({"model_max_length": 0})j", "model_max_length"},
      {R"j({"model_max_length": 10.5})j", "model_max_length"},
      {R"j({"bos_token": 5})j", "bos_token"},
      {R"j({"eos_token": {"text": "x"}})j", "content"},
      {R"j({"add_bos_token": "yes"})j", "add_bos_token"},
      {R"j({"added_tokens_decoder": [1]})j", "added_tokens_decoder"},
      {R"j({"added_tokens_decoder": {"x1": {"content": "<s>"}}})j", "'x1'"},
      {R"j({"added_tokens_decoder": {"-1": {"content": "<s>"}}})j", "'-1'"},
      {R"j({"added_tokens_decoder": {"99999999999999999999": {"content": "<s>"}}})j", "token id"},
      {R"j({"added_tokens_decoder": {"97": {"content": "<s>"}}})j", "id 97"},
      {R"j({"added_tokens_decoder": {"300": {"content": "a"}}})j", "97 in the vocabulary"},
      {R"j({"additional_special_tokens": "<s>"})j", "additional_special_tokens"},
      {R"j({"extra_special_tokens": [3]})j", "extra_special_tokens"},
      {R"j({"truncation_side": "middle"})j", "middle"},
      {R"j({"split_special_tokens": 1})j", "split_special_tokens"},
  };
  for (const Mutation& c : cases) {
    DQ_ASSERT_OK(const Json config, parse_json(c.patch, "config"));
    expect_error(load_tokenizer(small_tokenizer(), config), c.patch, c.expected);
  }
}

TEST(TokenizerMalformed, TruncatedAnywhere) {
  const std::string text = dump_json(small_tokenizer());
  const testing::TempDir dir;
  for (size_t n = 0; n < text.size(); n += 1 + text.size() / 200) {
    ASSERT_TRUE(write_file(dir / "tokenizer.json", text.substr(0, n)).ok());
    expect_error(Tokenizer::load(dir.path()), "truncated", "JSON");
  }
  ASSERT_TRUE(write_file(dir / "tokenizer.json", std::string(100000, '[')).ok());
  expect_error(Tokenizer::load(dir.path()), "brackets", "deeper");
  std::string deep = R"({"type": "NFC"})";
  for (int i = 0; i < 100; ++i) deep = R"({"type": "Sequence", "normalizers": [)" + deep + "]}";
  ASSERT_TRUE(write_file(dir / "tokenizer.json", "{\"normalizer\": " + deep + "}").ok());
  expect_error(Tokenizer::load(dir.path()), "normalizers", "deeper");
  ASSERT_TRUE(write_file(dir / "tokenizer.json", R"({"model": {"vocab": {"a": 0, "a": 1}, "merges": []}})").ok());
  expect_error(Tokenizer::load(dir.path()), "twice", "twice");
  expect_error(Tokenizer::load(dir / "absent"), "absent", "absent");
}

TEST(TokenizerMalformed, CatastrophicPatternIsAnErrorAtEncoding) {
  Json j = small_tokenizer();
  DQ_ASSERT_OK(const Json patch, parse_json(split_patch("(a|aa|a?a)+$x|(?:(?:b+)+)+c"), "patch"));
  j.merge_patch(patch);
  DQ_ASSERT_OK(const auto t, load_tokenizer(j));
  const auto r = t->encode(std::string(3000, 'a') + std::string(3000, 'b'), false);
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message.find("too much work"), std::string::npos) << r.error().message;
  EXPECT_TRUE(t->encode("other text", false).ok());
}

}  // namespace
}  // namespace danqing
