// Damaged tokenizer files: each is one clear error, never a crash, a hang or a wrong tokenizer.
#include <functional>

#include "text/small_tokenizer.h"

namespace danqing {
namespace {

using testing::added;
using testing::load_tokenizer;
using testing::small_tokenizer;

struct Mutation {
  const char* name;
  std::function<void(Json&)> apply;
  const char* expected;  // part of the message
};

void expect_error(const Result<std::shared_ptr<const Tokenizer>>& r, const char* name, const std::string& expected) {
  ASSERT_FALSE(r.ok()) << name;
  EXPECT_EQ(r.error().code, ErrorCode::bad_input) << name;
  EXPECT_NE(r.error().message.find(expected), std::string::npos) << name << ": " << r.error().message;
  EXPECT_EQ(r.error().message.find('\n'), std::string::npos) << name;
}

Json split(const std::string& pattern) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}};
}

Json nested(int depth) {
  Json j = {{"type", "NFC"}};
  for (int i = 0; i < depth; ++i) j = {{"type", "Sequence"}, {"normalizers", Json::array({j})}};
  return j;
}

const std::vector<Mutation>& mutations() {
  static const std::vector<Mutation> all = {
      {"no model", [](Json& j) { j.erase("model"); }, "model"},
      {"model is a list", [](Json& j) { j["model"] = Json::array(); }, "model"},
      {"document is a list", [](Json& j) { j = Json::array({1}); }, "object"},
      {"other model", [](Json& j) { j["model"]["type"] = "Unigram"; }, "Unigram"},
      {"no vocab", [](Json& j) { j["model"].erase("vocab"); }, "vocab"},
      {"vocab is a list", [](Json& j) { j["model"]["vocab"] = Json::array({"a"}); }, "vocab"},
      {"vocab is null", [](Json& j) { j["model"]["vocab"] = nullptr; }, "vocab"},
      {"id is a text", [](Json& j) { j["model"]["vocab"]["a"] = "97"; }, "integer"},
      {"id is a fraction", [](Json& j) { j["model"]["vocab"]["a"] = 9.5; }, "integer"},
      {"id is an object", [](Json& j) { j["model"]["vocab"]["a"] = Json::object(); }, "integer"},
      {"id is negative", [](Json& j) { j["model"]["vocab"]["a"] = -1; }, "-1"},
      {"id is huge", [](Json& j) { j["model"]["vocab"]["a"] = 4294967296; }, "4294967296"},
      {"id beyond 64 bits", [](Json& j) { j["model"]["vocab"]["a"] = 18446744073709551615u; }, "ids"},
      {"id twice", [](Json& j) { j["model"]["vocab"]["new"] = 97; }, "same id 97"},
      {"no merges", [](Json& j) { j["model"].erase("merges"); }, "merges"},
      {"merges is an object", [](Json& j) { j["model"]["merges"] = Json::object(); }, "merges"},
      {"merge of unknown left", [](Json& j) { j["model"]["merges"].push_back("zz a"); }, "'zz'"},
      {"merge of unknown right", [](Json& j) { j["model"]["merges"].push_back("a zz"); }, "'zz'"},
      {"merge with unknown result", [](Json& j) { j["model"]["merges"].push_back("x y"); }, "'xy'"},
      {"merge of one", [](Json& j) { j["model"]["merges"].push_back("aa"); }, "two texts"},
      {"merge of three", [](Json& j) { j["model"]["merges"].push_back("a a a"); }, "two texts"},
      {"merge pair of one", [](Json& j) { j["model"]["merges"].push_back({"a"}); }, "two texts"},
      {"merge pair of three", [](Json& j) { j["model"]["merges"].push_back({"a", "a", "a"}); }, "two texts"},
      {"merge pair of numbers", [](Json& j) { j["model"]["merges"].push_back({1, 2}); }, "two texts"},
      {"merge is nested", [](Json& j) { j["model"]["merges"].push_back({{"a"}, {"a"}}); }, "two texts"},
      {"merge is a number", [](Json& j) { j["model"]["merges"].push_back(5); }, "two texts"},
      {"dropout", [](Json& j) { j["model"]["dropout"] = 0.1; }, "dropout"},
      {"unknown unk_token", [](Json& j) { j["model"]["unk_token"] = "<none>"; }, "<none>"},
      {"byte_fallback is a text", [](Json& j) { j["model"]["byte_fallback"] = "yes"; }, "byte_fallback"},
      {"other normalizer", [](Json& j) { j["normalizer"] = {{"type", "Lowercase"}}; }, "Lowercase"},
      {"normalizer is a text", [](Json& j) { j["normalizer"] = "NFC"; }, "normalizer"},
      {"deep nesting", [](Json& j) { j["normalizer"] = nested(2000); }, "deeper"},
      {"other pre-tokenizer", [](Json& j) { j["pre_tokenizer"] = {{"type", "Metaspace"}}; }, "Metaspace"},
      {"two byte levels", [](Json& j) { j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {j["pre_tokenizer"], j["pre_tokenizer"]}}}; }, "second"},
      {"invalid regex", [](Json& j) { j["pre_tokenizer"] = split("(a"); }, "regular expression"},
      {"regex beyond this build", [](Json& j) { j["pre_tokenizer"] = split("[a-z&&[aeiou]]"); }, "cannot read"},
      {"regex with verbs", [](Json& j) { j["pre_tokenizer"] = split("(*UCP)a"); }, "cannot read"},
      {"huge regex", [](Json& j) { j["pre_tokenizer"] = split(std::string(100000, 'a')); }, "65536"},
      {"unknown behaviour", [](Json& j) { (j["pre_tokenizer"] = split("a"))["behavior"] = "Sometimes"; }, "Sometimes"},
      {"split without pattern", [](Json& j) { (j["pre_tokenizer"] = split("a")).erase("pattern"); }, "pattern"},
      {"other decoder", [](Json& j) { j["decoder"] = {{"type", "Metaspace"}}; }, "decoder"},
      {"other post-processor", [](Json& j) { j["post_processor"] = {{"type", "BertProcessing"}}; }, "BertProcessing"},
      {"template without text", [](Json& j) { j["post_processor"] = {{"type", "TemplateProcessing"}, {"single", Json::array()}}; }, "exactly once"},
      {"template with unknown token", [](Json& j) { j["post_processor"] = {{"type", "TemplateProcessing"}, {"single", {{{"SpecialToken", {{"id", "<s>"}}}}}}, {"special_tokens", Json::object()}}; }, "<s>"},
      {"added_tokens is an object", [](Json& j) { j["added_tokens"] = {{"a", 1}}; }, "added_tokens"},
      {"added token without content", [](Json& j) { j["added_tokens"] = Json::array({{{"id", 300}}}); }, "content"},
      {"added token without id", [](Json& j) { j["added_tokens"] = Json::array({{{"content", "<s>"}}}); }, "id"},
      {"added id negative", [](Json& j) { j["added_tokens"] = Json::array({added(-3, "<s>")}); }, "-3"},
      {"added id huge", [](Json& j) { j["added_tokens"] = Json::array({added(2147483647, "<s>")}); }, "2147483647"},
      {"added id of another token", [](Json& j) { j["added_tokens"] = Json::array({added(97, "<s>")}); }, "id 97"},
      {"added token with another id", [](Json& j) { j["added_tokens"] = Json::array({added(300, "aa")}); }, "256 in the vocabulary"},
      {"two added tokens of one id", [](Json& j) { j["added_tokens"] = {added(300, "<s>"), added(300, "</s>")}; }, "same id 300"},
      {"one added token with two ids", [](Json& j) { j["added_tokens"] = {added(300, "<s>"), added(301, "<s>")}; }, "300 and 301"},
      {"endless added token", [](Json& j) { j["added_tokens"] = Json::array({added(300, std::string(5000, 'a'))}); }, "5000"},
  };
  return all;
}

TEST(TokenizerMalformed, Documents) {
  ASSERT_TRUE(load_tokenizer(small_tokenizer()).ok()) << "the unharmed file loads";
  EXPECT_GE(mutations().size(), 50u);
  for (const Mutation& m : mutations()) {
    Json j = small_tokenizer();
    m.apply(j);
    expect_error(load_tokenizer(j), m.name, m.expected);
  }
}

TEST(TokenizerMalformed, Configs) {
  const std::pair<Json, const char*> cases[] = {
      {Json::array(), "object"},
      {{{"model_max_length", "long"}}, "model_max_length"},
      {{{"model_max_length", -1}}, "model_max_length"},
      {{{"model_max_length", 0}}, "model_max_length"},
      {{{"model_max_length", 10.5}}, "model_max_length"},
      {{{"bos_token", 5}}, "bos_token"},
      {{{"eos_token", {{"text", "</s>"}}}}, "content"},
      {{{"add_bos_token", "yes"}}, "add_bos_token"},
      {{{"added_tokens_decoder", Json::array({1})}}, "added_tokens_decoder"},
      {{{"added_tokens_decoder", {{"x1", {{"content", "<s>"}}}}}}, "'x1'"},
      {{{"added_tokens_decoder", {{"-1", {{"content", "<s>"}}}}}}, "'-1'"},
      {{{"added_tokens_decoder", {{"99999999999999999999", {{"content", "<s>"}}}}}}, "token id"},
      {{{"added_tokens_decoder", {{"97", {{"content", "<s>"}}}}}}, "id 97"},
      {{{"added_tokens_decoder", {{"300", {{"content", "a"}}}}}}, "97 in the vocabulary"},
      {{{"additional_special_tokens", "<s>"}}, "additional_special_tokens"},
      {{{"extra_special_tokens", Json::array({3})}}, "extra_special_tokens"},
      {{{"truncation_side", "middle"}}, "middle"},
  };
  for (const auto& [config, expected] : cases) expect_error(load_tokenizer(small_tokenizer(), config), expected, expected);
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
  ASSERT_TRUE(write_file(dir / "tokenizer.json", R"({"model": {"vocab": {"a": 0, "a": 1}, "merges": []}})").ok());
  expect_error(Tokenizer::load(dir.path()), "twice", "twice");
  expect_error(Tokenizer::load(dir / "absent"), "absent", "absent");
}

TEST(TokenizerMalformed, CatastrophicPatternIsAnErrorAtEncoding) {
  Json j = small_tokenizer();
  j["pre_tokenizer"] = split("(a|aa|a?a)+$x|(?:(?:b+)+)+c");
  DQ_ASSERT_OK(const auto t, load_tokenizer(j));
  const auto r = t->encode(std::string(3000, 'a') + std::string(3000, 'b'), false);
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message.find("too much work"), std::string::npos) << r.error().message;
  EXPECT_TRUE(t->encode("other text", false).ok());
}

}  // namespace
}  // namespace danqing
