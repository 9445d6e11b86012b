// Z-Image and Z-Image-Turbo as a pipeline: Qwen3 features of a chat prompt, single-stream DiT, AutoencoderKL.
#pragma once
#include "pipeline/family.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace danqing {

Result<std::unique_ptr<ModelFamily>> make_z_image_family(FamilyContext context);

/// Tokens of a prompt that the model sees, its chat template included; what lies behind is cut off.
inline constexpr size_t kZImageTokens = 512;

/// A prompt as the text encoder gets it.
struct ZImagePrompt {
  std::string rendered;  ///< in the chat template: one user turn, an assistant's turn begun, thinking enabled
  TokenIds ids;          ///< at most kZImageTokens
  TokenIds lost;         ///< those cut off
};
Result<ZImagePrompt> z_image_prompt(const Tokenizer& tokenizer, const ChatTemplate& chat, const std::string& prompt);
/// The template of a tokenizer directory (or of the directory of a tokenizer.json), or Qwen3's own form of one user
/// turn where there is none.
Result<ChatTemplate> z_image_template(const std::filesystem::path& tokenizer);

/// pos + scale * (pos - neg) for each picture [B, ...], scaled down to normalization times the norm of pos if that is
/// above 0 and the result longer.
void z_image_guide(const Tensor& pos, const Tensor& neg, const Guidance& guidance, Tensor& out);

}  // namespace danqing
