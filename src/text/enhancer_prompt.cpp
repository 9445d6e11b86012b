#include "text/enhancer_prompt.h"

#include "base/try.h"
#include "text/python_json.h"
#include "text/utf8.h"

namespace danqing {

std::string enhancer_user_message(std::string_view prompt, int width, int height) {
  std::string out = "{\"prompt\": ";
  append_json_string(out, utf8::sanitize(prompt));
  return out + fmt::format(", \"width\": {}, \"height\": {}}}", width, height);
}

Result<TokenIds> enhancer_prompt_ids(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                     std::string_view prompt, int width, int height) {
  ChatOptions options;
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token"})
    if (const std::string& token = tokenizer.named_token(name); !token.empty()) options.strings[name] = token;
  const std::string message = enhancer_user_message(prompt, width, height);
  DQ_TRY(const std::string text, chat_template.render({{"user", message}}, options));
  if (text.find(message) == std::string::npos)
    return bad_input("[chat template] expected a template that passes the user's message on, got one that drops it");
  return tokenizer.encode(text, true);
}

}  // namespace danqing
