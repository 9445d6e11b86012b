#include "pipeline/prompt_enhancer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/try.h"
#include "sampling/token_sampler.h"
#include "text/enhancer_prompt.h"

namespace danqing {
namespace {

constexpr int kMaxNewTokens = 65536;

/// eos_token_id may be one id or a list; generation_config.json wins over config.json.
Result<std::vector<int32_t>> stop_ids(const ComponentFiles& files, const Tokenizer& tokenizer) {
  for (const std::optional<Json>* json : {&files.generation_config, &files.config}) {
    if (!*json || !(*json)->is_object() || !(*json)->contains("eos_token_id")) continue;
    const Json& v = (**json)["eos_token_id"];
    std::vector<int32_t> ids;
    for (const Json& x : v.is_array() ? v : Json::array({v})) {
      if (x.is_null()) continue;
      if (!x.is_number_integer() || x.get<int64_t>() < 0 || x.get<int64_t>() > INT32_MAX)
        return bad_input("[json] {}: field 'eos_token_id' expected token ids, got {}", files.path.string(),
                         dump_json(v));
      ids.push_back(static_cast<int32_t>(x.get<int64_t>()));
    }
    if (!ids.empty()) return ids;
  }
  if (const auto eos = tokenizer.eos_id()) return std::vector<int32_t>{*eos};
  return bad_input("[enhance] {}: no eos_token_id in generation_config.json, config.json or the tokenizer",
                   files.path.string());
}

/// Takes whole characters off the front of `pending`; an incomplete one at the end stays.
std::string take_characters(std::string& pending) {
  size_t end = pending.size();
  for (size_t back = 1; back <= std::min<size_t>(3, pending.size()); ++back) {
    const auto c = static_cast<unsigned char>(pending[pending.size() - back]);
    if (c < 0x80) break;
    if (c >= 0xC0) {
      const size_t need = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
      if (need > back) end = pending.size() - back;
      break;
    }
  }
  std::string out = pending.substr(0, end);
  pending.erase(0, end);
  return out;
}

std::string strip(std::string s) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t a = s.find_first_not_of(kSpace);
  return a == std::string::npos ? "" : s.substr(a, s.find_last_not_of(kSpace) - a + 1);
}

}  // namespace

Result<void> check_enhance_options(const EnhanceOptions& o) {
  if (!(o.temperature >= 0) || !std::isfinite(o.temperature))
    return usage_error("[enhance] temperature expected a number >= 0, got {}", o.temperature);
  if (!(o.top_p > 0 && o.top_p <= 1))
    return usage_error("[enhance] top_p expected a number in (0, 1], got {}", o.top_p);
  if (o.top_k < 0) return usage_error("[enhance] top_k expected 0 (off) or more, got {}", o.top_k);
  if (o.max_new_tokens < 1 || o.max_new_tokens > kMaxNewTokens)
    return usage_error("[enhance] max_new_tokens expected 1 to {}, got {}", kMaxNewTokens, o.max_new_tokens);
  return {};
}

Result<std::unique_ptr<PromptEnhancer>> PromptEnhancer::load(std::shared_ptr<Device> device,
                                                             const ComponentFiles& files,
                                                             const std::filesystem::path& tokenizer,
                                                             const WeightPolicy& policy, const LoadProgress& progress) {
  std::unique_ptr<PromptEnhancer> e(new PromptEnhancer);
  DQ_TRY(e->tokenizer_, Tokenizer::load(tokenizer));
  DQ_TRY(ChatTemplate t, ChatTemplate::load(tokenizer));
  e->template_ = std::make_unique<ChatTemplate>(std::move(t));
  DQ_TRY(e->stop_ids_, danqing::stop_ids(files, *e->tokenizer_));
  DQ_TRY(e->model_, mistral3::CausalLM::load(std::move(device), files, policy, progress));
  return e;
}

int64_t PromptEnhancer::cap(int64_t max_new_tokens) const {
  const auto limit = tokenizer_->model_max_length();
  return limit ? std::min<int64_t>(max_new_tokens, *limit) : max_new_tokens;
}

Result<std::vector<int32_t>> PromptEnhancer::prompt_ids(std::string_view prompt, int width, int height) const {
  return enhancer_prompt_ids(*tokenizer_, *template_, prompt, width, height);
}

Result<std::vector<int32_t>> PromptEnhancer::generate(const std::vector<int32_t>& prompt_ids,
                                                      const EnhanceOptions& options,
                                                      const std::function<bool()>& cancelled,
                                                      const std::function<void(int32_t)>& on_token) {
  DQ_CHECK(check_enhance_options(options));
  const int64_t cap = this->cap(options.max_new_tokens);
  const TokenSamplerOptions sampler{options.temperature, options.top_k, options.top_p};
  CpuGenerator generator(options.seed.value_or(0));
  DQ_CHECK(model_->reset(static_cast<int64_t>(prompt_ids.size()) + cap));
  std::vector<int32_t> ids;
  std::vector<int32_t> next = prompt_ids;
  while (static_cast<int64_t>(ids.size()) < cap) {
    DQ_TRY(const std::vector<float> logits, model_->append(next, cancelled));
    if (cancelled && cancelled()) return fail(ErrorCode::cancelled, "[enhance] stopped");
    const int32_t id = choose_token(logits, sampler, generator);
    if (id < 0)
      return fail(ErrorCode::failed,
                  "[enhance] the model's logits are NaN after {} tokens: damaged weights, or values beyond the dtype "
                  "(--dtype f32 helps then)",
                  ids.size());
    ids.push_back(id);
    if (on_token) on_token(id);
    if (std::find(stop_ids_.begin(), stop_ids_.end(), id) != stop_ids_.end()) break;
    next = {id};
  }
  return ids;
}

Result<EnhanceResult> PromptEnhancer::run(std::string_view prompt, const EnhanceOptions& options,
                                          const std::function<bool()>& cancelled,
                                          const std::function<void(int, int, const std::string&)>& on_text) {
  const auto start = std::chrono::steady_clock::now();
  DQ_TRY(const std::vector<int32_t> prompt_tokens, prompt_ids(prompt, options.width, options.height));
  pending_.clear();
  int done = 0;
  if (on_text) on_text(0, options.max_new_tokens, "");  // reading a long prompt takes its time too
  DQ_TRY(const std::vector<int32_t> ids, generate(prompt_tokens, options, cancelled, [&](int32_t id) {
           ++done;
           if (!tokenizer_->is_special(id)) pending_ += tokenizer_->token_bytes(id);
           if (on_text) on_text(done, options.max_new_tokens, take_characters(pending_));
         }));
  EnhanceResult r;
  r.text = strip(tokenizer_->decode(ids, true));
  r.prompt_tokens = static_cast<int>(prompt_tokens.size());
  r.new_tokens = static_cast<int>(ids.size());
  r.reached_limit = ids.empty() || std::find(stop_ids_.begin(), stop_ids_.end(), ids.back()) == stop_ids_.end();
  r.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return r;
}

}  // namespace danqing
