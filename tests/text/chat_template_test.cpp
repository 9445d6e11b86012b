#include "text/chat_template.h"

#include "base/file.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using testing::data;

TEST(ChatTemplate, Qwen3GoldenTexts) {
  DQ_ASSERT_OK(const ChatTemplate t, ChatTemplate::load(data("tokenizers/qwen3")));
  const testing::Golden g = testing::golden("tokenizers/golden/qwen3_chat");
  const Json &prompts = g.json["prompts"], &rendered = g.json["rendered"];
  ASSERT_EQ(prompts.size(), 41u);
  ChatOptions options;
  options.add_generation_prompt = true;
  options.flags["enable_thinking"] = true;
  for (size_t i = 0; i < prompts.size(); ++i) {
    DQ_ASSERT_OK(const std::string text, t.render({{"user", prompts[i].get<std::string>()}}, options));
    EXPECT_EQ(text, rendered[i].get<std::string>()) << i;
  }
  options.flags["enable_thinking"] = false;
  DQ_ASSERT_OK(const std::string quiet, t.render({{"user", "cat"}}, options));
  EXPECT_EQ(quiet, "<|im_start|>user\ncat<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

TEST(ChatTemplate, FoundInTheConfigByName) {
  const testing::TempDir dir;
  const auto config = [&](const std::string& text) { return write_file(dir / "tokenizer_config.json", text).ok(); };
  ASSERT_TRUE(config(
      R"({"chat_template": [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "{{ messages[0].role }}"}]})"));
  DQ_ASSERT_OK(const ChatTemplate t, ChatTemplate::load(dir.path()));
  DQ_ASSERT_OK(const std::string text, t.render({{"user", "x"}}, {}));
  EXPECT_EQ(text, "user");
  ASSERT_TRUE(write_file(dir / "chat_template.jinja", "file\n").ok());
  DQ_ASSERT_OK(const ChatTemplate from_file, ChatTemplate::load(dir.path()));
  DQ_ASSERT_OK(const std::string of_file, from_file.render({}, {}));
  EXPECT_EQ(of_file, "file") << "chat_template.jinja comes first; a line break at its end does not count";
}

TEST(ChatTemplate, AbsentOrWrong) {
  const testing::TempDir dir;
  EXPECT_FALSE(ChatTemplate::load(dir.path()).ok());
  for (const char* text :
       {"{}", "[]", "{", R"({"chat_template": 5})", R"({"chat_template": [{"name": "x", "template": "y"}]})",
        R"({"chat_template": [3]})", R"({"chat_template": "{% if %}"})"}) {
    ASSERT_TRUE(write_file(dir / "tokenizer_config.json", text).ok());
    const auto r = ChatTemplate::load(dir.path());
    ASSERT_FALSE(r.ok()) << text;
    EXPECT_EQ(r.error().code, ErrorCode::bad_input);
  }
}

struct Bad {
  std::string source;
  const char* expected;
};

TEST(ChatTemplate, UnreadableTemplatesNameTheConstructAndLine) {
  const Bad cases[] = {
      {"a\n{% include 'x' %}", "line 2: the statement 'include'"},
      {"{% extends 'x' %}", "'extends'"},
      {"{% call f() %}{% endcall %}", "'call'"},
      {"{% raw %}{% endraw %}", "'raw'"},
      {"\n\n{{ x | selectattr('role') }}", "line 3: the filter 'selectattr'"},
      {"{{ x is lower }}", "the test 'lower'"},
      {"{% for x in y recursive %}{% endfor %}", "recursive"},
      {"{{ f(*args) }}", "'*'"},
      {"{{ x", "not closed"},
      {"{% if x %}", "endif"},
      {"{% if x %}{% endfor %}", "'endfor'"},
      {"{% endif %}", "'endif'"},
      {"{% for x %}{% endfor %}", "'in'"},
      {"{% for in y %}{% endfor %}", "expected"},
      {"{# never closed", "comment"},
      {"{{ 'never closed }}", "string"},
      {"{{ '\\x4' }}", "hexadecimal"},
      {"{{ (1, }}", "expected"},
      {"{{ [1}} ]", "unexpected '}'"},
      {"{{ 1 + }}", "an expression"},
      {"{{ 1 2 }}", "}}"},
      {"{{ }}", "an expression"},
      {"{{ a..b }}", "attribute"},
      {"{{ a[1:2:3:4] }}", "']'"},
      {"{{ a[] }}", "index"},
      {"{{ f(a=1, 2) }}", "positional"},
      {"{{ 99999999999999999999 }}", "64 bits"},
      {"{{ a ? b }}", "character '?'"},
      {"{% set a %}", "endset"},
      {"{% set a, b %}{% endset %}", "'='"},
      {"{% break %}", "outside a loop"},
      {"{% macro f(a %}{% endmacro %}", "unexpected '}'"},
      {"{% macro f a %}{% endmacro %}", "'('"},
      {"{% %}", "a statement"},
      {"{{ " + std::string(100000, '(') + "1" + std::string(100000, ')') + " }}", "too deeply"},
      {"{{ " + std::string(100000, '-') + "1 }}", "too deeply"},
      {"{{ a" + std::string(100000, '.') + " }}", "attribute"},
      {"{{ a" +
           [] {
             std::string s;
             for (int i = 0; i < 1000; ++i) s += ".b";
             return s;
           }() +
           " }}",
       "too many"},
      {[] {
         std::string s;
         for (int i = 0; i < 5000; ++i) s += "{% if a %}";
         return s;
       }(),
       "too deeply"},
      {std::string(2000000, 'a'), "at most"},
  };
  for (const Bad& c : cases) {
    const auto r = ChatTemplate::parse(c.source, "chat.jinja");
    ASSERT_FALSE(r.ok()) << c.source.substr(0, 100);
    EXPECT_EQ(r.error().message.rfind("[chat template] chat.jinja: ", 0), 0u) << r.error().message;
    EXPECT_NE(r.error().message.find(c.expected), std::string::npos)
        << c.source.substr(0, 100) << ": " << r.error().message;
    EXPECT_LT(r.error().message.size(), 300u);
  }
}

TEST(ChatTemplate, FailuresWhileRendering) {
  const Bad cases[] = {
      {"\n{{ raise_exception('only users, please') }}", "line 2: the template refuses: only users, please"},
      {"{{ foo.bar }}", "'foo' is undefined"},
      {"{{ foo['bar'] }}", "'foo' is undefined"},
      {"{{ foo + 'a' }}", "'foo' is undefined"},
      {"{{ foo() }}", "the function 'foo'"},
      {"{{ strftime_now('%Y') }}", "the function 'strftime_now'"},
      {"{{ 'a'.format(1) }}", "the method 'format' of a string"},
      {"{{ messages.append(1) }}", "the method 'append' of a list"},
      {"{{ 1 + 'a' }}", "not possible"},
      {"{{ 'a' < 1 }}", "cannot compare"},
      {"{{ 1 // 0 }}", "division by zero"},
      {"{{ 9223372036854775807 + 1 }}", "64 bits"},
      {"{{ 2 ** 100 }}", "64 bits"},
      {"{{ (-9223372036854775807 - 1) // -1 }}", "64 bits"},
      {"{{ 'abc'[::0] }}", "step 0"},
      {"{% for a in 5 %}{% endfor %}", "cannot be iterated"},
      {"{% for a, b in [1] %}{% endfor %}", "unpack"},
      {"{% set x.y = 1 %}", "not a namespace"},
      {"{{ 'a' * 100000000 }}", "bytes"},
      {"{{ {1: 2} }}", "dict keys"},
      {"{{ [namespace()] }}", "namespace"},
      {"{% set n = namespace() %}{% set n.a = n %}", "namespace"},
      {"{{ namespace }}", "cannot print"},
      {"{{ namespace() | tojson }}", "JSON"},
      // Work without end: each stops at the budget.
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "too deeply"},
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "too m"},
      {"{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}", "too m"},
      {"{% set n = namespace(s='aaaa') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}", "bytes"},
      {"{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}", "too much"},
      {"{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s }}",
       "too m"},
      {"{% set n = namespace(s=[]) %}{% for i in range(999) %}{% set n.s = [n.s] %}{% endfor %}", "nested deeper"},
      {"{{ range(10**9) | length }}", "100000"},
      {"{% set n = namespace(s='a' * 4000) %}{{ n.s.replace('a', n.s).replace('a', n.s) }}", "bytes"},
  };
  for (const Bad& c : cases) {
    DQ_ASSERT_OK(const ChatTemplate t, ChatTemplate::parse(c.source, "T"));
    const auto r = t.render({{"user", "x"}}, {});
    ASSERT_FALSE(r.ok()) << c.source << " gave " << r->substr(0, 100);
    EXPECT_NE(r.error().message.find(c.expected), std::string::npos) << c.source << ": " << r.error().message;
  }
}

TEST(ChatTemplate, MessagesAreDataNotTemplates) {
  DQ_ASSERT_OK(const ChatTemplate t, ChatTemplate::parse("{{ messages[0].content }}", "T"));
  DQ_ASSERT_OK(const std::string text, t.render({{"user", "{{ 1 }} {% if %} \xff"}}, {}));
  EXPECT_EQ(text, "{{ 1 }} {% if %} \uFFFD");
}

}  // namespace
}  // namespace danqing
