#include "text/chat_template.h"

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "text/jinja_eval.h"
#include "text/utf8.h"

namespace danqing {
namespace {

constexpr size_t kMaxSource = size_t{1} << 20;

// `chat_template` of the config: the text, or a list of named ones of which "default" counts.
Result<std::string> from_config(const JsonObject& config) {
  const Json* j = config.get("chat_template");
  if (j && j->is_array()) {
    for (const Json& entry : *j) {
      DQ_TRY(const JsonObject o, JsonObject::of(entry, config.where() + ":chat_template"));
      DQ_TRY(const std::string name, o.string("name"));
      if (name == "default") return o.string("template");
    }
    return bad_input("[chat template] {}: none of the templates is named 'default'", config.where());
  }
  return config.string("chat_template");
}

}  // namespace

struct ChatTemplate::Program {
  std::unique_ptr<jinja::Node> body;
  std::string where;
};

Result<ChatTemplate> ChatTemplate::parse(const std::string& source, const std::string& where) {
  if (source.size() > kMaxSource)
    return bad_input("[chat template] {}: expected a template of at most {} bytes, got {}", where, kMaxSource,
                     source.size());
  auto body = jinja::parse(utf8::sanitize(source));
  if (!body)
    return bad_input("[chat template] {}: a template that this build cannot read, {}", where, body.error().message);
  ChatTemplate t;
  t.program_ = std::make_shared<const Program>(Program{*std::move(body), where});
  return t;
}

Result<ChatTemplate> ChatTemplate::load(const std::filesystem::path& dir) {
  std::error_code ignored;
  const std::filesystem::path file = dir / "chat_template.jinja", config_file = dir / "tokenizer_config.json";
  if (std::filesystem::exists(file, ignored)) {
    DQ_TRY(const std::string source, read_text(file, kMaxSource));
    return parse(source, file.string());
  }
  if (!std::filesystem::exists(config_file, ignored))
    return bad_input("[chat template] {}: expected chat_template.jinja or tokenizer_config.json there, found neither",
                     dir.string());
  DQ_TRY(const Json json, read_json(config_file));
  DQ_TRY(const JsonObject config, JsonObject::of(json, config_file.string()));
  if (!config.has("chat_template"))
    return bad_input(
        "[chat template] {}: expected chat_template.jinja or a chat_template in tokenizer_config.json, found neither",
        dir.string());
  DQ_TRY(const std::string source, from_config(config));
  return parse(source, config_file.string() + ":chat_template");
}

Result<std::string> ChatTemplate::render(const std::vector<ChatMessage>& messages, const ChatOptions& options) const {
  jinja::Budget budget;
  jinja::Items list;
  for (const ChatMessage& m : messages) {
    DQ_TRY(jinja::Value message,
           jinja::make_dict({{"role", utf8::sanitize(m.role)}, {"content", utf8::sanitize(m.content)}}, budget));
    list.push_back(std::move(message));
  }
  std::map<std::string, jinja::Value> globals;
  DQ_TRY(globals["messages"], jinja::make_list(std::move(list), budget));
  globals["tools"] = jinja::None{};
  globals["documents"] = jinja::None{};
  globals["add_generation_prompt"] = options.add_generation_prompt;
  for (const auto& [name, value] : options.flags) globals[name] = value;
  for (const auto& [name, value] : options.strings) globals[name] = value;
  auto text = jinja::Evaluator(std::move(globals)).run(*program_->body);
  if (!text) return bad_input("[chat template] {}: {}", program_->where, text.error().message);
  return text;
}

}  // namespace danqing
