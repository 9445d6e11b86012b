// Token ids of many strings under real vocabularies, and prompts through a real chat template.
#include <charconv>
#include <map>

#include "base/try.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "verify/stages.h"

namespace danqing::app::verify {
namespace {

namespace fs = std::filesystem;
using SharedTokenizer = Lazy<std::shared_ptr<const Tokenizer>>;

/// Where a tokenizer of that name lies: the given place, beside the tree (as the page says), or inside it.
fs::path find_tokenizer(const Suite& suite, const std::string& name) {
  std::error_code ec;
  std::vector<fs::path> places;
  if (!suite.options.tokenizers.empty()) places.push_back(suite.options.tokenizers);
  const fs::path tree = fs::absolute(suite.options.tree, ec).lexically_normal();
  const fs::path above = tree.has_filename() ? tree.parent_path() : tree.parent_path().parent_path();
  places.push_back(above / "tokenizers");
  places.push_back(tree / "tokenizers");
  for (const fs::path& p : places)
    if (fs::exists(p / name / "tokenizer.json", ec)) return p / name;
  return {};
}

Result<std::vector<std::string>> read_strings(const Json& json, const std::string& where) {
  std::vector<std::string> out;
  if (!json.is_array()) return bad_input("[verify] {}: expected an array of texts, got {}", where, json.type_name());
  for (const Json& s : json) {
    if (!s.is_string()) return bad_input("[verify] {}: expected texts, got {}", where, s.type_name());
    out.push_back(s.get<std::string>());
  }
  return out;
}

/// Lists of ids: list i is ids[offsets[i] .. offsets[i+1]).
Result<std::vector<std::vector<int64_t>>> ragged(Golden& g, const std::string& ids_key, const std::string& offsets_key,
                                                 size_t count) {
  DQ_TRY(const std::vector<int64_t> ids, g.integers(ids_key));
  DQ_TRY(const std::vector<int64_t> offsets, g.integers(offsets_key));
  if (offsets.size() != count + 1)
    return bad_input("[verify] {}: '{}' expected {} numbers, got {}", g.label(), offsets_key, count + 1,
                     offsets.size());
  std::vector<std::vector<int64_t>> out;
  for (size_t i = 0; i < count; ++i) {
    if (offsets[i] < 0 || offsets[i] > offsets[i + 1] || offsets[i + 1] > static_cast<int64_t>(ids.size()))
      return bad_input("[verify] {}: '{}' is not increasing within the ids", g.label(), offsets_key);
    out.emplace_back(ids.begin() + offsets[i], ids.begin() + offsets[i + 1]);
  }
  return out;
}

Result<void> check_strings(Golden& g, const std::string& prefix, const fs::path& strings_file,
                           SharedTokenizer& tokenizer, Checker& c) {
  DQ_TRY(const Json json, read_json(strings_file));
  DQ_TRY(const std::vector<std::string> strings, read_strings(json, strings_file.string()));
  DQ_TRY(const auto expected, ragged(g, prefix + "ids", prefix + "offsets", strings.size()));
  DQ_TRY(const auto* tok, tokenizer.get());
  // A tokenizer that never reads special tokens from text differs from ours in strings that hold such text; where it
  // does, the file's hf_ids tell what ours should give.
  const bool plain = prefix.empty() && g.has("hf_ids") && g.has("hf_offsets");
  std::vector<std::vector<int64_t>> read;
  if (plain) {
    DQ_TRY(read, ragged(g, "hf_ids", "hf_offsets", strings.size()));
  }
  const std::string row = prefix + "ids of " + std::to_string(strings.size()) + " strings";
  int special = 0;
  for (size_t i = 0; i < strings.size(); ++i) {
    if (plain && expected[i] != read[i]) {
      ++special;
      continue;
    }
    DQ_TRY(const TokenIds ids, (*tok)->encode(strings[i], false));
    c.same(row, expected[i], std::vector<int64_t>(ids.begin(), ids.end()));
  }
  for (const char* key : {"ids", "offsets"}) g.mark(prefix + key, Mark::compared);
  if (special)
    c.skip("ids without special tokens",
           fmt::format("{} strings: text of special tokens is always read as such here", special), special);
  return {};
}

Result<void> check_chat(Golden& g, const fs::path& tokenizer_dir, SharedTokenizer& tokenizer, Checker& c) {
  if (!g.json().contains("prompts") || !g.json().contains("rendered"))
    return bad_input("[verify] {}.json: expected prompts and rendered", g.label());
  DQ_TRY(const std::vector<std::string> prompts, read_strings(g.json()["prompts"], g.label()));
  DQ_TRY(const std::vector<std::string> rendered, read_strings(g.json()["rendered"], g.label()));
  if (prompts.size() != rendered.size())
    return bad_input("[verify] {}.json: prompts and rendered differ in number", g.label());
  DQ_TRY(const auto expected, ragged(g, "ids", "offsets", prompts.size()));
  DQ_TRY(const auto* tok, tokenizer.get());
  const auto chat = ChatTemplate::load(tokenizer_dir);
  const std::string how =
      g.json().contains("how") && g.json()["how"].is_string() ? g.json()["how"].get<std::string>() : "";
  size_t limit = 512;  // of the pipeline, unless the file says otherwise
  if (const size_t at = how.find("max_length="); at != std::string::npos)
    std::from_chars(how.data() + at + 11, how.data() + how.size(), limit);
  ChatOptions options{.add_generation_prompt = true, .flags = {{"enable_thinking", true}}};
  options.strings = {{"bos_token", (*tok)->bos_token()}, {"eos_token", (*tok)->eos_token()}};
  if (!chat) c.skip("rendered", chat.error().message, static_cast<int>(prompts.size()));
  const std::string row = fmt::format("ids of {} chats", prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (chat) {
      DQ_TRY(const std::string text, chat->render({{"user", prompts[i]}}, options));
      c.same("rendered", rendered[i], text);
    }
    DQ_TRY(const TokenIds ids, (*tok)->encode(rendered[i], true));
    std::vector<int64_t> got(ids.begin(), ids.end());
    if (got.size() > limit) got.resize(limit);
    c.same(row, expected[i], got);
  }
  for (const char* key : {"ids", "offsets"}) g.mark(key, Mark::compared);
  return {};
}

}  // namespace

void add_tokenizers(Suite& suite, const fs::path& directory) {
  std::error_code ec;
  std::map<std::string, std::shared_ptr<SharedTokenizer>> loaded;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory, ec))
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const auto g = suite.golden(directory / name);
    const bool chat = name.ends_with("_chat");
    const std::string vocabulary = chat ? name.substr(0, name.size() - 5) : name;
    const fs::path place = find_tokenizer(suite, vocabulary);
    if (place.empty()) {
      suite.skip(g->label(), "all", g, g->keys(),
                 fmt::format("no tokenizers/{} beside or in this tree; --tokenizers names another place", vocabulary));
      continue;
    }
    auto& tokenizer = loaded[vocabulary];
    if (!tokenizer) tokenizer = std::make_shared<SharedTokenizer>([place] { return Tokenizer::load(place); });
    if (chat) {
      suite.add(g->label(), "chat", g, {"ids", "offsets"},
                [g, place, tokenizer](Checker& c) { return check_chat(*g, place, *tokenizer, c); });
      continue;
    }
    for (const std::string& prefix : {std::string(), std::string("hf_")})
      if (g->has(prefix + "ids"))
        suite.add(g->label(), prefix + "ids", g, {prefix + "ids", prefix + "offsets"},
                  [g, prefix, file = directory / "strings.json", tokenizer](Checker& c) {
                    return check_strings(*g, prefix, file, *tokenizer, c);
                  });
  }
}

}  // namespace danqing::app::verify
