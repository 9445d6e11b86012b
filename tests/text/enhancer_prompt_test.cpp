#include "text/enhancer_prompt.h"

#include <algorithm>

#include "testing/testing.h"

namespace danqing {
namespace {

using testing::data;
using testing::golden;
using testing::Golden;

TEST(EnhancerPrompt, UserMessageIsPythonsJson) {
  // Expected texts: json.dumps({...}, ensure_ascii=False) of Python 3.11.
  EXPECT_EQ(enhancer_user_message("cat", 1024, 768), R"({"prompt": "cat", "width": 1024, "height": 768})");
  EXPECT_EQ(enhancer_user_message("a\"b\\c\n\r\t\b\f\x01\x1f/\x7f猫", 1, 2),
            "{\"prompt\": \"a\\\"b\\\\c\\n\\r\\t\\b\\f\\u0001\\u001f/\x7f猫\", \"width\": 1, \"height\": 2}");
  EXPECT_EQ(enhancer_user_message(std::string_view("\0x\xff", 3), 1, 1),
            "{\"prompt\": \"\\u0000x\xEF\xBF\xBD\", \"width\": 1, \"height\": 1}");
}

TEST(EnhancerPrompt, GoldenIdsWithTwoBeginningsOfText) {
  DQ_ASSERT_OK(const auto tokenizer, Tokenizer::load(data("fixtures/ernie-tiny/pe_tokenizer")));
  DQ_ASSERT_OK(const ChatTemplate chat, ChatTemplate::load(data("fixtures/ernie-tiny/pe_tokenizer")));
  const Golden g = golden("ernie-tiny/golden/pe");
  const ChatOptions options{false, {}, {{"bos_token", tokenizer->bos_token()}, {"eos_token", tokenizer->eos_token()}}};
  int direct = 0;
  for (const auto& [name, c] : g.json["cases"].items()) {
    const auto prompt = c["prompt"].get<std::string>();
    const int width = c["width"].get<int>(), height = c["height"].get<int>();
    EXPECT_EQ(enhancer_user_message(prompt, width, height), c["user_json"].get<std::string>());
    std::vector<ChatMessage> messages;
    if (!c["system"].is_null()) messages.push_back({"system", c["system"].get<std::string>()});
    messages.push_back({"user", c["user_json"].get<std::string>()});
    DQ_ASSERT_OK(const std::string rendered, chat.render(messages, options));
    EXPECT_EQ(rendered, c["rendered"].get<std::string>()) << name;
    DQ_ASSERT_OK(const TokenIds ids, tokenizer->encode(rendered, true));
    EXPECT_EQ(ids, g.ids(name + ".prompt_ids")) << name;
    EXPECT_EQ(std::count(ids.begin(), ids.end(), *tokenizer->bos_id()), 2) << name;
    if (!c["system"].is_null()) continue;
    DQ_ASSERT_OK(const TokenIds whole, enhancer_prompt_ids(*tokenizer, chat, prompt, width, height));
    EXPECT_EQ(whole, g.ids(name + ".prompt_ids")) << name;
    ++direct;
  }
  EXPECT_EQ(direct, 3);
}

TEST(EnhancerPrompt, MiniModel) {
  DQ_ASSERT_OK(const auto tokenizer, Tokenizer::load(testing::mini_model() / "pe_tokenizer"));
  DQ_ASSERT_OK(const ChatTemplate chat, ChatTemplate::load(testing::mini_model() / "pe_tokenizer"));
  DQ_ASSERT_OK(const TokenIds ids, enhancer_prompt_ids(*tokenizer, chat, "a red apple", 64, 48));
  const std::string text = tokenizer->decode(ids, false);
  EXPECT_EQ(text.rfind("<s><s>[SYSTEM_PROMPT]", 0), 0u) << text;
  const std::string end = R"([/SYSTEM_PROMPT][INST]{"prompt": "a red apple", "width": 64, "height": 48}[/INST])";
  EXPECT_EQ(text.substr(text.size() - end.size()), end);
}

}  // namespace
}  // namespace danqing
