// Loading of a tokenizer directory: tokenizer.json, then what tokenizer_config.json changes about it, in the order and
// with the precedence of transformers' TokenizersBackend.
#include <charconv>
#include <cmath>

#include "base/file.h"
#include "base/text.h"
#include "base/try.h"
#include "text/tokenizer_impl.h"
#include "text/tokenizer_json.h"

namespace danqing {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNamed[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};

/// Whether a decoder is the byte-level one; anything that would change the text in another way is an error.
Result<bool> is_byte_level_decoder(const Json* j, const std::string& where) {
  if (!j || j->is_null()) return false;
  DQ_TRY(const JsonObject o, JsonObject::of(*j, where + ":decoder"));
  DQ_TRY(const std::string type, o.string("type"));
  if (type == "ByteLevel") return true;
  if (type == "Fuse") return false;
  const Json* parts = o.get("decoders");
  if (type != "Sequence" || !parts || !parts->is_array())
    return bad_input("[tokenizer] {}: expected ByteLevel or a Sequence with it, got {}, which this build cannot read",
                     o.where(), one_line(type));
  bool byte_level = false;
  for (const Json& part : *parts) {
    DQ_TRY(const bool inner, is_byte_level_decoder(&part, where));
    byte_level = byte_level || inner;
  }
  return byte_level;
}

Result<void> add_listed(const JsonObject& file, const Vocabulary& vocabulary, AddedTokens& added) {
  const Json* list = file.get("added_tokens");
  if (!list) return {};
  if (!list->is_array()) return bad_input("[tokenizer] {}: added_tokens expected a list", file.where());
  for (const Json& entry : *list) {
    const std::string where = file.where() + ":added_tokens";
    DQ_TRY(AddedToken token, AddedToken::from_json(entry, where));
    DQ_TRY(const JsonObject o, JsonObject::of(entry, where));
    DQ_TRY(const int64_t id, o.integer_in("id", 0, kMaxTokenId));
    token.id = static_cast<int32_t>(id);
    DQ_CHECK(added.add(token, vocabulary, file.where()));
  }
  return {};
}

Result<void> add_decoder_table(const JsonObject& config, const Vocabulary& vocabulary, AddedTokens& added) {
  if (!config.has("added_tokens_decoder")) return {};
  DQ_TRY(const JsonObject table, config.object("added_tokens_decoder"));
  for (const auto& [key, entry] : table.json().items()) {
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id > kMaxTokenId)
      return bad_input("[tokenizer] {}: expected a token id, got '{}'", table.where(), one_line(key));
    DQ_TRY(AddedToken token, AddedToken::from_json(entry, table.where()));
    token.id = id;
    const AddedToken* known = added.find(std::string_view(token.content));
    if (known && known->id == id) continue;  // tokenizer.json has described it already
    DQ_CHECK(added.add(token, vocabulary, config.where()));
  }
  return {};
}

Result<std::optional<int64_t>> max_length(const JsonObject& config) {
  const Json* j = config.get("model_max_length");
  if (!j) return std::optional<int64_t>();
  const double value = j->is_number() ? j->get<double>() : 0;
  if (!(value >= 1) || value != std::floor(value))
    return bad_input("[tokenizer] {}: model_max_length expected a positive integer, got {}", config.where(),
                     dump_json(*j).substr(0, 60));
  if (value >= 9e18) return std::optional<int64_t>();  // how transformers writes "no limit"
  return std::optional<int64_t>(static_cast<int64_t>(value));
}

}  // namespace

// The parts of tokenizer_config.json, one after the other, applied to a tokenizer read from tokenizer.json.
class TokenizerConfigReader {
 public:
  TokenizerConfigReader(Tokenizer::Impl& impl, const JsonObject& config) : impl_(impl), config_(config) {}

  Result<void> apply(const JsonObject* map) {
    DQ_CHECK(add_decoder_table(config_, impl_.bpe.vocabulary(), impl_.added));
    for (const std::string_view name : kNamed) DQ_CHECK(named(name, map));
    for (const char* list : {"additional_special_tokens", "extra_special_tokens"}) DQ_CHECK(extra(list));
    DQ_TRY(impl_.max_length, max_length(config_));
    DQ_TRY(impl_.split_special_tokens, config_.boolean("split_special_tokens", false));
    DQ_TRY(const std::string side, config_.string("truncation_side", "right"));
    if (side != "left" && side != "right")
      return bad_input("[tokenizer] {}: truncation_side expected left or right, got '{}'", config_.where(),
                       one_line(side));
    impl_.truncate_left = side == "left";
    return begin_and_end();
  }

 private:
  /// A special token that nothing has described yet gets its vocabulary id, or the next free one.
  Result<void> ensure(AddedToken token) {
    if (token.content.empty() || impl_.added.find(std::string_view(token.content))) return {};
    const int32_t known = impl_.bpe.vocabulary().id_of(token.content);
    token.id = known >= 0 ? known : impl_.end_id();
    token.special = true;
    return impl_.added.add(token, impl_.bpe.vocabulary(), config_.where());
  }

  Result<void> named(std::string_view name, const JsonObject* map) {
    // A null in the config is a decision; the older map is asked only for what the config does not mention.
    const bool mentioned = config_.json().contains(std::string(name));
    const JsonObject& from = mentioned || !map ? config_ : *map;
    const Json* j = from.get(name);
    if (!j) return {};
    DQ_TRY(const AddedToken token, AddedToken::from_json(*j, fmt::format("{}:{}", from.where(), name)));
    impl_.named[std::string(name)] = token.content;
    return ensure(token);
  }

  Result<void> extra(const char* key) {
    const Json* j = config_.get(key);
    if (!j) return {};
    if (!j->is_array() && !j->is_object())
      return bad_input("[tokenizer] {}: {} expected a list or an object of tokens", config_.where(), key);
    for (const Json& entry : *j) {
      DQ_TRY(const AddedToken token, AddedToken::from_json(entry, fmt::format("{}:{}", config_.where(), key)));
      DQ_CHECK(ensure(token));
    }
    return {};
  }

  Result<void> begin_and_end() {
    const Json& j = config_.json();
    if (!j.contains("add_bos_token") && !j.contains("add_eos_token")) return {};
    DQ_TRY(const bool add_bos, config_.boolean("add_bos_token", false));
    DQ_TRY(const bool add_eos, config_.boolean("add_eos_token", false));
    impl_.post = {};
    if (const auto id = impl_.named_id("bos_token"); id && add_bos) impl_.post.before = {*id};
    if (const auto id = impl_.named_id("eos_token"); id && add_eos) impl_.post.after = {*id};
    return {};
  }

  Tokenizer::Impl& impl_;
  const JsonObject& config_;
};

Result<std::shared_ptr<const Tokenizer>> Tokenizer::load(const fs::path& path) {
  std::error_code ignored;
  const bool directory = fs::is_directory(path, ignored);
  const fs::path file = directory ? path / "tokenizer.json" : path;
  DQ_TRY(const std::string text, read_text(file));
  DQ_TRY(TokenizerJson parsed, parse_tokenizer_json(text, file.string()));
  DQ_TRY(const JsonObject root, JsonObject::of(parsed.rest, file.string()));
  DQ_TRY(const JsonObject model, root.object("model"));

  auto impl = std::make_unique<Impl>();
  DQ_TRY(impl->bpe, Bpe::build(model, std::move(parsed.bpe), file.string()));
  DQ_TRY(impl->normalizer, Normalizer::from_json(root.get("normalizer"), file.string()));
  DQ_TRY(impl->pre_tokenizer, PreTokenizer::from_json(root.get("pre_tokenizer"), file.string()));
  DQ_TRY(impl->byte_level_decoder, is_byte_level_decoder(root.get("decoder"), file.string()));
  DQ_CHECK(add_listed(root, impl->bpe.vocabulary(), impl->added));
  DQ_TRY(impl->post, PostProcessor::from_json(root.get("post_processor"), impl->end_id(), file.string()));

  if (directory && fs::exists(path / "tokenizer_config.json", ignored)) {
    const fs::path config_file = path / "tokenizer_config.json", map_file = path / "special_tokens_map.json";
    DQ_TRY(const Json config_json, read_json(config_file));
    DQ_TRY(const JsonObject config, JsonObject::of(config_json, config_file.string()));
    Json map_json = Json::object();
    if (fs::exists(map_file, ignored)) {
      DQ_TRY(map_json, read_json(map_file));
    }
    DQ_TRY(const JsonObject map, JsonObject::of(map_json, map_file.string()));
    DQ_CHECK(TokenizerConfigReader(*impl, config).apply(&map));
  }
  DQ_CHECK(impl->added.finish(impl->normalizer));
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

}  // namespace danqing
