#include "server/engine/enhancer.h"

#include <curl/curl.h>

#include "base/file.h"
#include "base/text.h"
#include "base/try.h"

namespace danqing::server {
namespace {

constexpr size_t kCache = 256;
constexpr size_t kMaxAnswer = 1 << 20;
constexpr const char* kSystem =
    "You write prompts for an image generator. Rewrite the user's short prompt as one detailed description of the "
    "picture, in the same language, keeping every fact that is given. Answer with the description only.";

size_t take(char* data, size_t size, size_t count, void* to) {
  auto& text = *static_cast<std::string*>(to);
  if (text.size() + size * count > kMaxAnswer) return 0;
  text.append(data, size * count);
  return size * count;
}

std::string key_of(const char* who, const std::string& prompt, const EnhanceOptions& o, uint64_t seed) {
  return fmt::format("{}|{}|{}|{}|{}|{}|{}x{}|{}", who, o.temperature, o.top_p, o.top_k, o.max_new_tokens, seed,
                     o.width, o.height, prompt);
}

/// What an enhancer writes goes into requests and files: no NUL, whole characters.
std::string clean(std::string text) {
  std::erase(text, '\0');
  text.resize(valid_utf8_prefix(text));
  const size_t a = text.find_first_not_of(" \t\r\n"), b = text.find_last_not_of(" \t\r\n");
  return a == std::string::npos ? "" : text.substr(a, b - a + 1);
}

}  // namespace

Enhancer::Enhancer(const Config& config, Jobs* jobs) : config_(config), jobs_(jobs) {
  curl_global_init(CURL_GLOBAL_DEFAULT);
  if (!config.enhancer_key_file.empty())
    if (auto key = read_text(config.enhancer_key_file, 4096)) api_key_ = clean(*key);
}

bool Enhancer::cached(const std::string& key, std::string& text) {
  const std::lock_guard lock(mutex_);
  for (auto it = cache_.begin(); it != cache_.end(); ++it)
    if (it->first == key) {
      cache_.splice(cache_.begin(), cache_, it);
      text = it->second;
      return true;
    }
  return false;
}

void Enhancer::remember(const std::string& key, const std::string& text) {
  const std::lock_guard lock(mutex_);
  cache_.emplace_front(key, text);
  if (cache_.size() > kCache) cache_.pop_back();
}

Result<std::string> Enhancer::ask(const std::string& prompt, const EnhanceOptions& o) {
  std::string url = config_.enhancer_url;
  if (url.find("/chat/completions") == std::string::npos)
    url += (url.back() == '/' ? "" : "/") + std::string("chat/completions");
  Json body{{"messages", {{{"role", "system"}, {"content", kSystem}}, {{"role", "user"}, {"content", prompt}}}},
            {"temperature", o.temperature},
            {"top_p", o.top_p},
            {"max_tokens", o.max_new_tokens},
            {"seed", o.seed.value_or(0) & 0x7fffffff},
            {"stream", false}};
  if (!config_.enhancer_model.empty()) body["model"] = config_.enhancer_model;
  const std::string text = dump_json(body);
  const std::unique_ptr<CURL, void (*)(CURL*)> curl(curl_easy_init(), curl_easy_cleanup);
  if (!curl) return fail(ErrorCode::failed, "[enhance] no HTTP client");
  curl_slist* list = curl_slist_append(nullptr, "Content-Type: application/json");
  if (!api_key_.empty()) list = curl_slist_append(list, ("Authorization: Bearer " + api_key_).c_str());
  const std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(list, curl_slist_free_all);
  std::string answer;
  curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDS, text.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDSIZE, static_cast<long>(text.size()));
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, take);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &answer);
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT_MS, static_cast<long>(config_.enhancer_seconds * 1000));
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  const CURLcode code = curl_easy_perform(curl.get());
  if (code != CURLE_OK) return fail(ErrorCode::failed, "[enhance] {}: {}", url, curl_easy_strerror(code));
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  if (status != 200) return fail(ErrorCode::failed, "[enhance] {}: answered {}", url, status);
  DQ_TRY(const Json json, parse_json(answer, url));
  const Json* content = nullptr;
  if (json.is_object() && json.contains("choices") && json["choices"].is_array() && !json["choices"].empty()) {
    const Json& choice = json["choices"][0];
    if (choice.is_object() && choice.contains("message") && choice["message"].is_object() &&
        choice["message"].contains("content"))
      content = &choice["message"]["content"];
  }
  if (!content || !content->is_string())
    return fail(ErrorCode::failed, "[enhance] {}: expected choices[0].message.content", url);
  std::string result = clean(content->get<std::string>());
  if (result.empty()) return fail(ErrorCode::failed, "[enhance] {}: wrote nothing", url);
  if (result.size() > 65536) return fail(ErrorCode::failed, "[enhance] {}: wrote {} bytes", url, result.size());
  return result;
}

void Enhancer::prepare(const LivePtr& job) {
  const JobSpec& spec = job->record.spec;
  if (!jobs_ || !spec.external_enhancer || !external() || !spec.request.revised_prompts.empty()) return;
  job->held = true;
  threads_.post([this, job] {
    const GenerateRequest& r = job->record.spec.request;
    std::vector<std::string> revised = r.prompts;
    for (size_t i = 0; i < r.prompts.size() && !job->out; ++i) {
      EnhanceOptions o = r.enhance;
      o.max_new_tokens = std::min(o.max_new_tokens, config_.enhancer_tokens);
      if (!o.seed && !r.seeds.empty())
        o.seed = r.seeds[std::min(r.seeds.size() - 1, i * static_cast<size_t>(r.images_per_prompt))];
      const std::string key = key_of("external", r.prompts[i], o, o.seed.value_or(0));
      if (cached(key, revised[i])) continue;
      auto text = ask(r.prompts[i], o);
      if (text) {
        remember(key, *text);
        revised[i] = std::move(*text);
      } else {
        jobs_->note(job, "the prompt is used as given: " + text.error().message);
      }
    }
    job->revised = std::move(revised);
    jobs_->release(job);
  });
}

std::vector<std::string> Enhancer::enhance(const Ticket& ticket, Engine& engine, const Run& run) {
  const JobSpec& spec = ticket.spec;
  const GenerateRequest& r = spec.request;
  if (!r.revised_prompts.empty()) return r.revised_prompts;
  const ModelInfo& info = engine.info();
  const bool wanted =
      r.enhancer == EnhancerMode::on || (r.enhancer == EnhancerMode::automatic && info.defaults.prompt_enhancer);
  if (!ticket.revised.empty() || !wanted || !info.has_prompt_enhancer) return ticket.revised;
  std::vector<std::string> revised = r.prompts;
  for (size_t i = 0; i < r.prompts.size() && !run.cancelled(); ++i) {
    EnhanceOptions o = r.enhance;
    o.max_new_tokens = std::min(o.max_new_tokens, config_.enhancer_tokens);
    o.width = r.width ? r.width : info.defaults.width;
    o.height = r.height ? r.height : info.defaults.height;
    if (!o.seed)
      o.seed =
          r.seeds.empty() ? 0 : r.seeds[std::min(r.seeds.size() - 1, i * static_cast<size_t>(r.images_per_prompt))];
    const std::string key = key_of(spec.model.c_str(), r.prompts[i], o, *o.seed);
    if (cached(key, revised[i])) continue;
    RunControl control;
    control.cancelled = run.cancelled;
    control.on_progress = run.on_progress;
    const auto result = engine.enhance(r.prompts[i], o, control);
    if (!result) {
      if (result.error().code != ErrorCode::cancelled)
        run.note("the prompt is used as given: " + result.error().message);
      continue;
    }
    std::string text = clean(result->text);
    if (result->reached_limit) run.note(fmt::format("the enhancer reached its limit of {} tokens", o.max_new_tokens));
    if (text.empty()) {
      run.note("the enhancer wrote nothing; the prompt is used as given");
      continue;
    }
    remember(key, text);
    revised[i] = std::move(text);
  }
  return revised;
}

}  // namespace danqing::server
