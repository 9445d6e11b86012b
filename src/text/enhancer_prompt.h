// What the prompt enhancer is asked: the user's prompt and the size of the picture, as a chat.
#pragma once
#include <string>
#include <string_view>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace danqing {

/// {"prompt": "...", "width": 1024, "height": 1024}; invalid UTF-8 in the prompt becomes U+FFFD.
std::string enhancer_user_message(std::string_view prompt, int width, int height);

/// The ids that generation starts from: the user message through the chat template without a generation prompt, then
/// tokenised with special tokens on. When template and tokenizer both begin the text there are two beginning-of-text
/// ids.
Result<TokenIds> enhancer_prompt_ids(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                     std::string_view prompt, int width, int height);

}  // namespace danqing
