// Chat templates (`chat_template.jinja`, or `chat_template` in tokenizer_config.json): the part of Jinja that such
// templates use, interpreted. Anything else in a template is a clear error that names the construct and its line.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "danqing/result.h"

namespace danqing {

struct ChatMessage {
  std::string role;  ///< "system", "user", "assistant"
  std::string content;
};

struct ChatOptions {
  bool add_generation_prompt = false;
  std::map<std::string, bool> flags;           ///< e.g. {"enable_thinking", true}
  std::map<std::string, std::string> strings;  ///< e.g. {"bos_token", "<s>"}
};

class ChatTemplate {
 public:
  /// Finds the template of a tokenizer directory. Error bad_input: none there, or one that this build cannot read.
  static Result<ChatTemplate> load(const std::filesystem::path& tokenizer_dir);
  static Result<ChatTemplate> parse(const std::string& source, const std::string& where);
  /// Work is bounded (loop iterations and output size); `raise_exception` in a template becomes the Error's text.
  Result<std::string> render(const std::vector<ChatMessage>& messages, const ChatOptions& options) const;

 private:
  struct Program;
  std::shared_ptr<const Program> program_;
};

}  // namespace danqing
