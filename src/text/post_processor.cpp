#include "text/post_processor.h"

#include "base/text.h"
#include "base/try.h"

namespace danqing {
namespace {

constexpr size_t kMaxAdded = 1024;

Result<TokenIds> special_ids(const JsonObject& special, const std::string& name, int32_t vocab_size) {
  DQ_TRY(const JsonObject entry, special.object(name));
  DQ_TRY(const std::vector<int64_t> ids, entry.integers("ids"));
  for (const int64_t id : ids)
    if (id < 0 || id >= vocab_size)
      return bad_input("[tokenizer] {}: expected ids below {}, got {}", entry.where(), vocab_size, id);
  return TokenIds(ids.begin(), ids.end());
}

Result<PostProcessor> from_template(const JsonObject& o, int32_t vocab_size) {
  const Json* single = o.get("single");
  if (!single || !single->is_array()) return bad_input("[tokenizer] {}: expected a list 'single'", o.where());
  PostProcessor p;
  bool text_seen = false;
  for (const Json& item : *single) {
    DQ_TRY(const JsonObject piece, JsonObject::of(item, o.where() + ":single"));
    if (piece.has("Sequence")) {
      DQ_TRY(const JsonObject sequence, piece.object("Sequence"));
      DQ_TRY(const std::string id, sequence.string("id"));
      if (id != "A" || text_seen) return bad_input("[tokenizer] {}: expected the text exactly once", piece.where());
      text_seen = true;
      continue;
    }
    DQ_TRY(const JsonObject token, piece.object("SpecialToken"));
    DQ_TRY(const std::string name, token.string("id"));
    DQ_TRY(const JsonObject special, o.object("special_tokens"));
    DQ_TRY(const TokenIds ids, special_ids(special, name, vocab_size));
    TokenIds& side = text_seen ? p.after : p.before;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!text_seen) return bad_input("[tokenizer] {}: expected the text exactly once, got it never", o.where());
  return p;
}

}  // namespace

Result<PostProcessor> PostProcessor::from_json(const Json* j, int32_t vocab_size, const std::string& where) {
  PostProcessor p;
  if (!j || j->is_null()) return p;
  DQ_TRY(const JsonObject o, JsonObject::of(*j, where + ":post_processor"));
  DQ_TRY(const std::string type, o.string("type"));
  if (type == "ByteLevel") return p;  // adjusts offsets only
  if (type == "TemplateProcessing") return from_template(o, vocab_size);
  if (type != "Sequence")
    return bad_input(
        "[tokenizer] {}: expected TemplateProcessing, ByteLevel or Sequence, got {}, which this build cannot read",
        o.where(), one_line(type));
  const Json* parts = o.get("processors");
  if (!parts || !parts->is_array()) return bad_input("[tokenizer] {}: expected a list 'processors'", o.where());
  for (const Json& part : *parts) {
    DQ_TRY(const PostProcessor inner, from_json(&part, vocab_size, where));
    p.before.insert(p.before.begin(), inner.before.begin(), inner.before.end());
    p.after.insert(p.after.end(), inner.after.begin(), inner.after.end());
    if (p.before.size() + p.after.size() > kMaxAdded)
      return bad_input("[tokenizer] {}: expected at most {} added ids", o.where(), kMaxAdded);
  }
  return p;
}

}  // namespace danqing
