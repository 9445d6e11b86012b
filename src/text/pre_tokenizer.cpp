#include "text/pre_tokenizer.h"

#include <algorithm>

#include "base/text.h"
#include "base/try.h"
#include "text/byte_level.h"
#include "text/utf8.h"

namespace danqing {
namespace {

// How ByteLevel cuts when it is told to (GPT-2's pattern).
constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct Part {
  Span span;
  bool match;
};

// The whole piece as matches and what lies between them. An empty match right behind the last match is passed over.
Result<void> find_parts(Regex::Matcher& matcher, std::string_view text, Span piece, std::vector<Part>& parts) {
  const std::string_view s = text.substr(piece.begin, piece.size());
  const auto push = [&](size_t begin, size_t end, bool match) {
    parts.push_back({{piece.begin + begin, piece.begin + end}, match});
  };
  size_t from = 0, done = 0;
  bool matched = false;
  while (from <= s.size()) {
    Span m;
    DQ_TRY(const bool found, matcher.find(s, from, m));
    if (!found) break;
    if (m.begin == m.end && matched && m.end == done) {
      if (from >= s.size()) break;
      utf8::next(s, from);
      continue;
    }
    if (m.begin < done) m.begin = done;
    if (done != m.begin) push(done, m.begin, false);
    push(m.begin, m.end, true);
    from = done = m.end;
    matched = true;
  }
  if (done != s.size()) push(done, s.size(), false);
  return {};
}

void join(std::vector<Part>& parts, SplitBehavior behavior, std::vector<Span>& out) {
  const size_t first = out.size();
  bool previous = false;
  const bool backwards = behavior == SplitBehavior::merged_with_next;
  if (backwards) std::reverse(parts.begin(), parts.end());
  for (const Part& p : parts) {
    bool merge = false;
    switch (behavior) {
      case SplitBehavior::isolated: break;
      case SplitBehavior::removed:
        if (p.match) continue;
        break;
      case SplitBehavior::contiguous: merge = p.match == previous; break;
      case SplitBehavior::merged_with_previous:
      case SplitBehavior::merged_with_next: merge = p.match && !previous; break;
    }
    previous = p.match;
    if (merge && out.size() > first) {
      (backwards ? out.back().begin : out.back().end) = backwards ? p.span.begin : p.span.end;
    } else {
      out.push_back(p.span);
    }
  }
  const auto begin = out.begin() + static_cast<std::ptrdiff_t>(first);
  if (backwards) std::reverse(begin, out.end());
  out.erase(std::remove_if(begin, out.end(), [](Span s) { return s.size() == 0; }), out.end());
}

Result<SplitBehavior> behavior_from(const JsonObject& o) {
  DQ_TRY(const std::string name, o.string("behavior"));
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  return bad_input("[tokenizer] {}: expected a known split behavior, got '{}'", o.where(), one_line(name));
}

}  // namespace

Result<PreTokenizer> PreTokenizer::from_json(const Json* j, const std::string& where) {
  PreTokenizer p;
  if (j && !j->is_null()) DQ_CHECK(p.add(*j, where + ":pre_tokenizer"));
  return p;
}

Result<void> PreTokenizer::add(const Json& j, const std::string& where) {
  if (steps_.size() >= 64) return bad_input("[tokenizer] {}: expected at most 64 steps", where);
  DQ_TRY(const JsonObject o, JsonObject::of(j, where));
  DQ_TRY(const std::string type, o.string("type"));
  if (type == "Sequence") {
    const Json* parts = o.get("pretokenizers");
    if (!parts || !parts->is_array()) return bad_input("[tokenizer] {}: expected a list 'pretokenizers'", where);
    for (const Json& part : *parts) DQ_CHECK(add(part, where));
    return {};
  }
  Step step;
  if (type == "Split") {
    DQ_TRY(const JsonObject pattern, o.object("pattern"));
    const bool literal = pattern.has("String");
    DQ_TRY(const std::string text, pattern.string(literal ? "String" : "Regex"));
    if (text.empty()) return bad_input("[tokenizer] {}: the pattern of a Split is empty", where);
    DQ_TRY(step.regex, Regex::compile(text, literal, where));
    DQ_TRY(step.behavior, behavior_from(o));
    DQ_TRY(step.invert, o.boolean("invert", false));
  } else if (type == "ByteLevel") {
    // Each pass can double the text, and a second one has no meaning.
    for (const Step& before : steps_)
      if (before.byte_level) return bad_input("[tokenizer] {}: expected one ByteLevel, got a second", where);
    step.byte_level = true;
    DQ_TRY(step.add_prefix_space, o.boolean("add_prefix_space", true));
    DQ_TRY(const bool use_regex, o.boolean("use_regex", true));
    DQ_CHECK(o.boolean("trim_offsets", true));  // concerns offsets only, which nothing here reports
    if (use_regex) {
      DQ_TRY(step.regex, Regex::compile(kGpt2Pattern, false, where));
    }
  } else {
    return bad_input("[tokenizer] {}: expected Sequence, Split or ByteLevel, got {}, which this build cannot read",
                     where, one_line(type));
  }
  steps_.push_back(std::move(step));
  return {};
}

Result<void> PreTokenizer::split(const Step& step, Pieces& pieces) {
  Regex::Matcher matcher(*step.regex, pieces.text.size());
  std::vector<Span> out;
  out.reserve(pieces.spans.size());
  std::vector<Part> parts;
  for (const Span piece : pieces.spans) {
    parts.clear();
    DQ_CHECK(find_parts(matcher, pieces.text, piece, parts));
    if (step.invert)
      for (Part& p : parts) p.match = !p.match;
    join(parts, step.behavior, out);
  }
  pieces.spans = std::move(out);
  return {};
}

Result<void> PreTokenizer::run(Pieces& pieces) const {
  for (const Step& step : steps_) {
    if (step.add_prefix_space) {
      Pieces spaced;
      spaced.text.reserve(pieces.text.size() + pieces.spans.size());
      for (const Span s : pieces.spans) {
        const size_t begin = spaced.text.size();
        if (pieces.text[s.begin] != ' ') spaced.text += ' ';
        spaced.text.append(pieces.text, s.begin, s.size());
        spaced.spans.push_back({begin, spaced.text.size()});
      }
      pieces = std::move(spaced);
    }
    if (step.regex) DQ_CHECK(split(step, pieces));
    if (step.byte_level) {
      Pieces mapped;
      mapped.text.reserve(pieces.text.size() * 2);
      mapped.spans.reserve(pieces.spans.size());
      for (const Span s : pieces.spans) {
        const size_t begin = mapped.text.size();
        byte_level::append_encoded(mapped.text, std::string_view(pieces.text).substr(s.begin, s.size()));
        mapped.spans.push_back({begin, mapped.text.size()});
      }
      pieces = std::move(mapped);
    }
  }
  return {};
}

}  // namespace danqing
