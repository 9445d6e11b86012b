#include "text/jinja_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "text/utf8.h"

namespace danqing::jinja {
namespace {

bool python_space(char32_t c) { return utf8::is_space(c) || (c >= 0x1C && c <= 0x1F); }

struct Char {
  size_t begin, end;
  char32_t code;
};

std::vector<Char> characters(std::string_view s) {
  std::vector<Char> out;
  for (size_t i = 0; i < s.size();) {
    const size_t begin = i;
    const char32_t c = utf8::next(s, i);
    out.push_back({begin, i, c});
  }
  return out;
}

char32_t to_upper(char32_t c) { return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))); }
char32_t to_lower(char32_t c) { return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))); }

template <class F>
std::string mapped(std::string_view s, F f) {
  std::string out;
  for (const Char& c : characters(s)) utf8::append(out, f(c.code));
  return out;
}

// Words between runs of white space; what the limit leaves over keeps its inner and far white space, as in Python.
std::vector<std::string> split_space(std::string_view s, int64_t limit, bool from_right) {
  std::vector<std::pair<size_t, size_t>> words;
  bool inside = false;
  for (const Char& c : characters(s)) {
    const bool space = python_space(c.code);
    if (!space && !inside) words.emplace_back(c.begin, c.end);
    if (!space) words.back().second = c.end;
    inside = !space;
  }
  std::vector<std::string> out;
  const size_t most = limit < 0 ? words.size() : std::min(words.size(), static_cast<size_t>(limit));
  const size_t rest = words.size() - most;
  if (from_right && rest > 0) out.emplace_back(s.substr(0, words[rest - 1].second));
  for (size_t i = from_right ? rest : 0; i < (from_right ? words.size() : most); ++i)
    out.emplace_back(s.substr(words[i].first, words[i].second - words[i].first));
  if (!from_right && rest > 0) out.emplace_back(s.substr(words[most].first));
  return out;
}

}  // namespace

std::string strip(std::string_view s, const std::optional<std::string>& chars, bool left, bool right) {
  std::vector<char32_t> set;
  if (chars)
    for (const Char& c : characters(*chars)) set.push_back(c.code);
  const auto goes = [&](char32_t c) {
    return chars ? std::find(set.begin(), set.end(), c) != set.end() : python_space(c);
  };
  size_t begin = 0, end = s.size();
  while (left && begin < end) {
    size_t i = begin;
    if (!goes(utf8::next(s, i))) break;
    begin = i;
  }
  while (right && begin < end) {
    size_t start = end - 1;
    while (start > begin && (static_cast<unsigned char>(s[start]) & 0xC0) == 0x80) --start;
    size_t i = start;
    if (!goes(utf8::next(s, i))) break;
    end = start;
  }
  return std::string(s.substr(begin, end - begin));
}

std::vector<std::string> split(std::string_view s, std::string_view separator, int64_t limit, bool from_right) {
  if (separator.empty()) return split_space(s, limit, from_right);
  std::vector<std::string> out;
  while (limit < 0 || static_cast<int64_t>(out.size()) < limit) {
    const size_t at = from_right ? s.rfind(separator) : s.find(separator);
    if (at == std::string_view::npos) break;
    if (from_right) {
      out.emplace_back(s.substr(at + separator.size()));
      s = s.substr(0, at);
    } else {
      out.emplace_back(s.substr(0, at));
      s = s.substr(at + separator.size());
    }
  }
  out.emplace_back(s);
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

std::string replace(std::string_view s, std::string_view old, std::string_view with, int64_t limit) {
  std::string out;
  size_t done = 0;
  for (int64_t n = 0; limit < 0 || n < limit; ++n) {
    if (old.empty()) {  // Python puts `with` before every character and at the end
      if (n > 0) {
        if (done >= s.size()) break;
        const size_t begin = done;
        utf8::next(s, done);
        out += s.substr(begin, done - begin);
      }
      out += with;
      continue;
    }
    const size_t at = s.find(old, done);
    if (at == std::string_view::npos) break;
    out.append(s.substr(done, at - done)).append(with);
    done = at + old.size();
  }
  return out.append(s.substr(done));
}

std::string upper(std::string_view s) { return mapped(s, to_upper); }
std::string lower(std::string_view s) { return mapped(s, to_lower); }

std::string capitalize(std::string_view s) {
  bool first = true;
  return mapped(s, [&](char32_t c) { return std::exchange(first, false) ? to_upper(c) : to_lower(c); });
}

std::string title(std::string_view s) {
  bool inside = false;
  return mapped(s, [&](char32_t c) {
    const bool letter = to_upper(c) != to_lower(c);
    const char32_t r = !letter ? c : inside ? to_lower(c) : to_upper(c);
    inside = letter;
    return r;
  });
}

}  // namespace danqing::jinja
