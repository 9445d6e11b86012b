// From the user's words to token ids, and the rule of guidance.
#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "base/try.h"
#include "pipeline/z_image_family.h"

namespace danqing {

Result<ChatTemplate> z_image_template(const std::filesystem::path& tokenizer) {
  std::error_code ec;
  const std::filesystem::path dir = std::filesystem::is_directory(tokenizer, ec) ? tokenizer : tokenizer.parent_path();
  const std::filesystem::path config = dir / "tokenizer_config.json";
  bool has = std::filesystem::exists(dir / "chat_template.jinja", ec);
  if (!has && std::filesystem::exists(config, ec)) {
    DQ_TRY(const Json json, read_json(config));
    has = json.is_object() && json.contains("chat_template");
  }
  if (has) return ChatTemplate::load(dir);
  return ChatTemplate::parse(
      "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}"
      "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}",
      "Qwen3's template");
}

Result<ZImagePrompt> z_image_prompt(const Tokenizer& tokenizer, const ChatTemplate& chat, const std::string& prompt) {
  ChatOptions options;
  options.add_generation_prompt = true;
  options.flags["enable_thinking"] = true;
  ZImagePrompt p;
  DQ_TRY(p.rendered, chat.render({{"user", prompt}}, options));
  DQ_TRY(p.ids, tokenizer.encode(p.rendered, true));
  if (p.ids.size() > kZImageTokens) {
    p.lost.assign(p.ids.begin() + kZImageTokens, p.ids.end());
    p.ids.resize(kZImageTokens);
  }
  if (p.ids.empty())
    return bad_input("[text] expected the chat template to give tokens, got none for the prompt '{}'", prompt);
  return p;
}

void z_image_guide(const Tensor& pos, const Tensor& neg, const Guidance& guidance, Tensor& out) {
  out = pos;
  for (size_t i = 0; i < out.data.size(); ++i) out.data[i] += guidance.scale * (pos.data[i] - neg.data[i]);
  if (!(guidance.normalization > 0)) return;
  const auto batch = static_cast<size_t>(pos.size(0)), one = pos.data.size() / batch;
  const auto norm = [&](const Tensor& t, size_t b) {
    double sum = 0;
    for (size_t i = b * one; i < (b + 1) * one; ++i)
      sum += static_cast<double>(t.data[i]) * static_cast<double>(t.data[i]);
    return static_cast<float>(std::sqrt(sum));
  };
  for (size_t b = 0; b < batch; ++b) {
    const float most = norm(pos, b) * guidance.normalization, now = norm(out, b);
    if (!(now > most)) continue;
    for (size_t i = b * one; i < (b + 1) * one; ++i) out.data[i] *= most / now;
  }
}

}  // namespace danqing
