// The template interpreter against Jinja2 3.1.6 as transformers 5.24 sets it up (trim_blocks, lstrip_blocks, its
// tojson): every expected text below was computed by it.
#include "testing/testing.h"
#include "text/chat_template.h"

namespace danqing {
namespace {

TEST(ChatTemplate, RendersAsJinja) {
  const std::vector<ChatMessage> messages = {
      {"user", "Hi"}, {"assistant", "<think>\nhm\n</think>\n\nok"}, {"user", "x\ny"}};
  const ChatOptions options{false, {}, {{"bos_token", "<s>"}, {"eos_token", "</s>"}}};
  struct Case {
    const char *source, *expected;
  };
  const Case cases[] =
      {
          {R"T({{ 1 + 2 * 3 - -4 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 4/2 }} {{ 1e3 }} {{ 10**-1 }})T",
           R"T(11 3 -4 1 2 3.5 1024 2.0 1000.0 0.1)T"},
          {R"T({{ 'a' ~ 1 ~ none ~ true }}|{{ 1.0 }}|{{ [1,'a',none,True, "it's", 'x\ny'] }}|{{ {'a': 1, 'b': [2]} }}|)T",
           R"T(a1NoneTrue|1.0|[1, 'a', None, True, "it's", 'x\ny']|{'a': 1, 'b': [2]}|)T"},
          {R"T({{ messages[0].role }} {{ messages[-1]['content'] }} {{ messages[9] is defined }} {{ messages[0].foo is defined }} {{ messages|length }})T",
           R"T(user x
y False False 3)T"},
          {R"T({{ messages[::-1]|length }}{{ 'abcdef'[1:4] }}{{ 'abcdef'[::-1] }}{{ 'abcdef'[-2:] }}{{ 'abcdef'[::2] }}{{ 'abc'[10:] }}{{ 'abcdef'[4:1:-1] }}{{ [1,2,3][:-1] }}{{ 'a你b'[1] }})T",
           R"T(3bcdfedcbaefaceedc[1, 2]你)T"},
          {R"T({% for x in [1,2,3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.previtem }}{{ loop.nextitem }}{% if not loop.last %}, {% endif %}{% endfor %})T",
           R"T(10TrueFalse332, 21FalseFalse3213, 32FalseTrue312)T"},
          {R"T({% for x in [] %}a{% else %}none{% endfor %}{% for x in messages if x.role == 'user' %}{{ loop.index }}{{ x.content }}{% endfor %})T",
           R"T(none1Hi2x
y)T"},
          {R"T({% for k, v in {'a':1,'b':2}.items() %}{{k}}={{v}};{% endfor %}{% for c in 'a你' %}[{{c}}]{% endfor %}{% for k in {'z':1} %}{{k}}{% endfor %}{% for a in range(3) %}{{a}}{% endfor %}{% for a in range(5,1,-2) %}{{a}}{% endfor %})T",
           R"T(a=1;b=2;[a][你]z01253)T"},
          {R"T({% set x = 1 %}{% for i in [1,2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }})T",
           R"T(2319)T"},
          {R"T({% set ns = namespace(a=1, b='x') %}{% for i in [1,2] %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }})T",
           R"T(4xFalse)T"},
          {R"T({% set b %}hello {{ messages[0].role }}{% endset %}{{ b|upper }}{% set b | trim %}  y  {% endset %}[{{b}}])T",
           R"T(HELLO USER[y])T"},
          {R"T({% macro f(a, b='d', c=none) %}<{{a}}{{b}}{{c}}>{% endmacro %}{{ f(1) }}{{ f(1, c=3) }}{{ f('x','y','z') }}{% set v = f(2) %}{{ v|length }})T",
           R"T(<1dNone><1d3><xyz>8)T"},
          {R"T({{ 'a' if false }}|{{ 'a' if true else 'b' }}|{{ 'a' if 0 else 'b' if 0 else 'c' }}|{{ none or 'x' }}|{{ 0 and 1 }}|{{ not '' }}|{{ 1 if messages else 2 }})T",
           R"T(|a|c|x|0|True|1)T"},
          {R"T({{ 'x' in 'xyz' }}{{ 'q' not in 'xyz' }}{{ 1 in [1,2] }}{{ 'a' in {'a':1} }}{{ 1 < 2 < 3 }}{{ 3 > 2 > 2 }}{{ 1 == 1.0 }}{{ 'a' == 1 }}{{ true == 1 }}{{ none == none }}{{ foo == bar }}{{ [1] == [1.0] }}{{ {'a':1} == {'a':1} }})T",
           R"T(TrueTrueTrueTrueTrueFalseTrueFalseTrueTrueTrueTrueTrue)T"},
          {R"T({{ foo is defined }}{{ foo is not defined }}{{ foo is undefined }}{{ none is none }}{{ foo is none }}{{ 'a' is string }}{{ {} is mapping }}{{ [] is iterable }}{{ 'a' is iterable }}{{ 1 is iterable }}{{ true is true }}{{ 1 is true }}{{ false is false }}{{ 1 is number }}{{ true is number }}{{ true is integer }}{{ 1 is integer }}{{ 1.0 is float }}{{ [] is sequence }}{{ true is boolean }}{{ 3 is odd }}{{ 4 is even }}{{ 9 is divisibleby 3 }}{{ 1 is in [1] }}{{ 1 is eq 1 }}{{ 'a' is equalto('a') }}{{ foo is string }}{{ foo is iterable }}{{ raise_exception is callable }})T",
           R"T(FalseTrueTrueTrueFalseTrueTrueTrueTrueFalseTrueFalseTrueTrueTrueFalseTrueTrueTrueTrueTrueTrueTrueTrueTrueTrueFalseTrueTrue)T"},
          {R"T({{ '  a b '.strip() }}|{{ 'xxaxx'.lstrip('x') }}|{{ 'xxaxx'.rstrip('x') }}|{{ 'a,b,c'.split(',') }}|{{ ' a  b '.split() }}|{{ 'a,b,c'.split(',', 1) }}|{{ 'a b  c '.split(none, 1) }}|{{ 'a,b,c'.rsplit(',', 1) }}|{{ ' a b  c'.rsplit(none,1) }}|{{ 'abc'.startswith('ab') }}|{{ 'abc'.endswith(('x','c')) }}|{{ 'aXa'.replace('a','b') }}|{{ 'aaa'.replace('a','b',1) }}|{{ 'abc'.replace('','-') }}|{{ 'äb'.upper() }}|{{ 'ÄB'.lower() }}|{{ 'hello world'.title() }}|{{ 'HELLO'.capitalize() }})T",
           R"T(a b|axx|xxa|['a', 'b', 'c']|['a', 'b']|['a', 'b,c']|['a', 'b  c ']|['a,b', 'c']|[' a b', 'c']|True|True|bXb|baa|-a-b-c-|ÄB|äb|Hello World|Hello)T"},
          {R"T({{ '  a '|trim }}|{{ 'xax'|trim('x') }}|{{ {'a': [1, 2.5, none, true, "q\"\n\t\x01é你"]}|tojson }}|{{ {'a':[1,{}],'b':[]}|tojson(indent=2) }}|{{ 'abc'|length }}|{{ [1,2]|count }}|{{ 'a'|upper }}|{{ 'A'|lower }}|{{ 'aba'|replace('a','c') }}|{{ foo|default('d') }}|{{ ''|default('d') }}|{{ ''|default('d', true) }}|{{ none|d('x', boolean=true) }}|{{ [1,2]|first }}|{{ [1,2]|last }}|{{ [1,'a']|join('-') }}|{{ 'abc'|join(',') }}|{{ 1|string + 'a' }}|{{ '12'|int + 1 }}|{{ 'x'|int(7) }}|{{ 3.9|int }}|{{ ' 42 '|int }}|{{ 'abc'|list }}||{{ [1,2]|reverse|list }}|{{ 'ab'|reverse }}|{{ 'aB c'|title }}|{{ 'aB'|capitalize }}|{{ []|first is defined }})T",
           R"T(a|a|{"a": [1, 2.5, null, true, "q\"\n\t\u0001é你"]}|{
  "a": [
    1,
    {}
  ],
  "b": []
}|3|2|A|a|cbc|d||d|x|1|2|1-a|a,b,c|1a|13|7|3|42|['a', 'b', 'c']||[2, 1]|ba|Ab C|Ab|False)T"},
          {R"T(a
  {% if true %}
  b
  {% endif %}
c
  {{ 'x' }}
   {#- comment -#}  
 d {%- if true -%}   e   {%- endif +%}
 {%+ if true %} f{% endif %}
{# c #}
g{{- ' h ' -}}  i
    {% set a = 1 %}   
j
{%- for m in messages %}
{{ m.role }}:
    {%- if loop.first %} first{% endif %}
{% endfor %})T",
           R"T(a
  b
c
  xde
  fg h i
   
juser: firstassistant:user:)T"},
          {R"T({{ {'a': {'b': 1}}['a']['b'] }}{{ {'a':1}.get('a') }}{{ {'a':1}.get('z') }}{{ {'a':1}.get('z', 5) }}{{ {'a':1}.keys()|list }}{{ {'a':1}.values()|list }}{{ {'items': 3}['items'] }})T",
           R"T(11None5['a'][1]3)T"},
          {R"T({{ "double \"q\" \u4f60 \x41 \d" }}{{ 'a' 'b' }}{{ 'it''s' }})T", R"T(double "q" 你 A \dabits)T"},
          {R"T({% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %})T",
           R"T(02)T"},
          {R"T({% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{% endfor %})T",
           R"T(userassistantuser)T"},
          {R"T({% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c }}{{ d }}{% for a, b in [[1,2],[3,4]] %}{{ a }}{{ b }}{% endfor %})T",
           R"T(12341234)T"},
          {R"T({{ dict(a=1, b=2) }}{{ dict({'x':1}, y=2) }}{{ -3|string }}{{ (-3)|string }}{{ 'a' * 3 }}{{ [1] + [2] }}{{ 'é'|length }}{{ 1_000 }})T",
           R"T({'a': 1, 'b': 2}{'x': 1, 'y': 2}-3-3aaa[1, 2]11000)T"},
          {R"T({{ none.x is defined }})T", R"T(False)T"},
          {R"T({{ 'a'.foo is defined }})T", R"T(False)T"},
          {R"T({% for x in foo %}{% else %}E{% endfor %})T", R"T(E)T"},
          {R"T({{ loop }})T", R"T()T"},
          {R"T({{ {'a':1, 'a':2} }}{{ {'a': 'x'}.a.upper() }}{{ messages[0]['content'].strip().split(' ')[0] }}{{ messages[loop_index|default(0)].role }})T",
           R"T({'a': 2}XHiuser)T"},
          {R"T({%- macro r(n) -%}{% if n > 0 %}{{ n }}{{ r(n - 1) }}{% endif %}{%- endmacro %}{{ r(5) }})T",
           R"T(54321)T"},
      };
  for (const Case& c : cases) {
    DQ_ASSERT_OK(const ChatTemplate t, ChatTemplate::parse(c.source, "test"));
    DQ_ASSERT_OK(const std::string text, t.render(messages, options));
    EXPECT_EQ(text, c.expected) << c.source;
  }
}

}  // namespace
}  // namespace danqing
