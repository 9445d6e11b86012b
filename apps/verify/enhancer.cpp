// The prompt enhancer: chat text, ids, logits, and the tokens it chooses.
#include <algorithm>
#include <charconv>
#include <numeric>

#include "base/try.h"
#include "pipeline/family.h"
#include "pipeline/prompt_enhancer.h"
#include "sampling/token_sampler.h"
#include "text/enhancer_prompt.h"
#include "verify/stages.h"

namespace danqing::app::verify {
namespace {

using Enhancer = Lazy<std::unique_ptr<PromptEnhancer>>;

std::shared_ptr<Enhancer> make_enhancer(const Model& m, ComputeType type) {
  return std::make_shared<Enhancer>([m, type]() -> Result<std::unique_ptr<PromptEnhancer>> {
    DQ_TRY(const ComponentFiles files, m.component("pe"));
    return PromptEnhancer::load(m.suite.device, files, m.directory / "pe_tokenizer", weight_policy(files, type), {});
  });
}

struct PeCase {
  Model m;
  std::shared_ptr<Golden> g;
  std::string name;
  std::shared_ptr<Enhancer> f32, bf16;
  std::string key(const char* what) const { return name + "." + what; }
  bool has(const char* what) const { return g->has(key(what)); }
};

std::vector<int64_t> wide(const std::vector<int32_t>& ids) { return {ids.begin(), ids.end()}; }

Tensor one_axis(std::vector<float> v) {
  Tensor t;
  t.shape = {static_cast<int64_t>(v.size())};
  t.data = std::move(v);
  return t;
}

/// The chat text by the directory's template from the case's user message, and the ids of our own whole road to it.
Result<void> check_prompt(const PeCase& p, const JsonObject& info, PromptEnhancer& enhancer, Checker& c) {
  DQ_TRY(const std::string rendered, info.string("rendered"));
  DQ_TRY(const std::string user, info.string("user_json"));
  DQ_TRY(const std::string prompt, info.string("prompt"));
  DQ_TRY(const int64_t width, info.integer_in("width", 1, 1 << 20));
  DQ_TRY(const int64_t height, info.integer_in("height", 1, 1 << 20));
  const std::filesystem::path dir = p.m.directory / "pe_tokenizer";
  DQ_TRY(const ChatTemplate chat, ChatTemplate::load(dir));
  DQ_TRY(const auto tokenizer, Tokenizer::load(dir));
  std::vector<ChatMessage> messages;
  if (info.has("system")) {
    DQ_TRY(std::string system, info.string("system"));
    messages.push_back({"system", std::move(system)});
  }
  const std::string message = enhancer_user_message(prompt, static_cast<int>(width), static_cast<int>(height));
  c.same(p.name + " user message", user, message);
  messages.push_back({"user", message});
  ChatOptions options;
  options.strings = {{"bos_token", tokenizer->bos_token()}, {"eos_token", tokenizer->eos_token()}};
  DQ_TRY(const std::string text, chat.render(messages, options));
  c.same(p.name + " rendered", rendered, text);
  if (!p.has("prompt_ids")) return {};
  DQ_TRY(const TokenIds ids, tokenizer->encode(text, true));
  c.same(p.key("prompt_ids"), *p.g, p.key("prompt_ids"), wide(ids));
  if (info.has("system")) return {};  // the pipeline's own call has no system text
  DQ_TRY(const std::vector<int32_t> own,
         enhancer.prompt_ids(prompt, static_cast<int>(width), static_cast<int>(height)));
  c.same(p.key("prompt_ids"), *p.g, p.key("prompt_ids"), wide(own));
  return {};
}

void check_nucleus(const PeCase& p, const std::vector<float>& logits, double factor, Checker& c) {
  const std::vector<float> all = token_probabilities(logits, {});
  std::vector<int64_t> ids;
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i] > 0) ids.push_back(static_cast<int64_t>(i));
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int64_t a, int64_t b) { return all[static_cast<size_t>(a)] > all[static_cast<size_t>(b)]; });
  std::vector<float> probabilities;
  for (const int64_t id : ids) probabilities.push_back(all[static_cast<size_t>(id)]);
  c.same(p.key("nucleus_ids"), *p.g, p.key("nucleus_ids"), ids);
  if (p.has("nucleus_probs"))
    c.compare(p.key("nucleus_probs"), *p.g, p.key("nucleus_probs"), one_axis(std::move(probabilities)),
              f32_tolerance(page::kLogits, 0, factor));
}

/// Tokens chosen one after another. One more is allowed than the golden has, so that a missed end shows.
Result<std::vector<int64_t>> choose(PromptEnhancer& enhancer, const std::vector<int32_t>& prompt, EnhanceOptions o,
                                    size_t expected) {
  o.max_new_tokens = static_cast<int>(std::min<size_t>(expected + 1, 65536));
  DQ_TRY(const std::vector<int32_t> ids, enhancer.generate(prompt, o, {}, {}));
  return wide(ids);
}

Result<void> check_choices(const PeCase& p, const JsonObject& info, PromptEnhancer& enhancer,
                           const std::vector<int32_t>& prompt, Checker& c) {
  const bool exact = p.m.suite.factors.exact_sampling;
  if (p.has("greedy_ids")) {
    DQ_TRY(const std::vector<int64_t> expected, p.g->integers(p.key("greedy_ids")));
    EnhanceOptions o;
    o.temperature = 0;
    DQ_TRY(std::vector<int64_t> got, choose(enhancer, prompt, o, expected.size()));
    // Less exact logits may take another way from a near tie on: as far as torch's bf16 kept the way must be kept.
    const auto kept = static_cast<size_t>(number_at(info.json(), {"bf16_greedy_equal_prefix"}).value_or(1));
    if (exact || kept >= expected.size()) {
      c.same(p.key("greedy_ids"), *p.g, p.key("greedy_ids"), got);
    } else {
      const auto head = [kept](const std::vector<int64_t>& v) { return std::span(v).first(std::min(kept, v.size())); };
      c.same(p.key("greedy_ids") + " (first)", head(expected), head(got));
      p.g->mark(p.key("greedy_ids"), Mark::compared);
    }
  }
  for (const std::string& seed_text : p.g->names(p.key("sampled_ids_seed"), "")) {
    const std::string key = p.key("sampled_ids_seed") + seed_text;
    if (!exact) {
      c.skip(key, "sampled tokens need exact f32 logits, which this device may not give");
      p.g->mark(key, Mark::not_run);
      continue;
    }
    uint64_t seed = 0;
    std::from_chars(seed_text.data(), seed_text.data() + seed_text.size(), seed);
    DQ_TRY(const std::vector<int64_t> expected, p.g->integers(key));
    EnhanceOptions o;
    o.seed = seed;
    DQ_TRY(const std::vector<int64_t> got, choose(enhancer, prompt, o, expected.size()));
    c.same(key, *p.g, key, got);
  }
  return {};
}

Result<void> check(const PeCase& p, Checker& c) {
  const std::string where = p.g->label() + ".json";
  DQ_TRY(const JsonObject top, JsonObject::of(p.g->json(), where));
  DQ_TRY(const JsonObject cases, top.object("cases"));
  DQ_TRY(const JsonObject info, cases.object(p.name));
  const DeviceFactors& factors = p.m.suite.factors;
  DQ_TRY(const std::vector<int64_t> golden_prompt, p.g->integers(p.key("prompt_ids")));
  const std::vector<int32_t> prompt(golden_prompt.begin(), golden_prompt.end());
  if (p.m.suite.options.f32) {
    DQ_TRY(auto* loaded, p.f32->get());
    PromptEnhancer& enhancer = **loaded;
    DQ_CHECK(check_prompt(p, info, enhancer, c));
    DQ_CHECK(enhancer.model().reset(static_cast<int64_t>(prompt.size())));
    DQ_TRY(std::vector<float> logits, enhancer.model().append(prompt));
    if (p.has("nucleus_ids") && factors.exact_sampling) {
      check_nucleus(p, logits, factors.matmul, c);
    } else if (p.has("nucleus_ids")) {
      c.skip(p.key("nucleus_ids"), "which candidates stay needs exact f32 logits, which this device may not give");
      p.g->mark(p.key("nucleus_ids"), Mark::not_run);
      p.g->mark(p.key("nucleus_probs"), Mark::not_run);
    }
    if (p.has("first_logits"))
      c.compare(p.key("first_logits"), *p.g, p.key("first_logits"), one_axis(std::move(logits)),
                f32_tolerance(page::kLogits, 0, factors.matmul));
    DQ_CHECK(check_choices(p, info, enhancer, prompt, c));
  } else {
    for (const std::string& k : p.g->keys_with(p.name + "."))
      if (!k.ends_with("_bf16")) p.g->mark(k, Mark::not_selected);
  }
  if (!p.has("first_logits_bf16")) return {};
  if (!p.m.suite.options.bf16) {
    p.g->mark(p.key("first_logits_bf16"), Mark::not_selected);
    return {};
  }
  DQ_TRY(auto* loaded, p.bf16->get());
  DQ_CHECK((*loaded)->model().reset(static_cast<int64_t>(prompt.size())));
  DQ_TRY(std::vector<float> logits, (*loaded)->model().append(prompt));
  c.bf16(p.key("first_logits_bf16"), *p.g, p.key("first_logits_bf16"), *p.g, p.key("first_logits"),
         one_axis(std::move(logits)), number_at(info.json(), {"first_logits_bf16_vs_f32", "rel_l2"}), page::kLogits);
  return {};
}

}  // namespace

void add_enhancer(const Model& m) {
  const auto g = m.golden("pe");
  const auto f32 = make_enhancer(m, ComputeType::f32), bf16 = make_enhancer(m, ComputeType::bf16);
  for (const std::string& name : g->names("", ".prompt_ids")) {
    const PeCase p{m, g, name, f32, bf16};
    m.suite.add(m.stage("pe"), name, g, g->keys_with(name + "."), [p](Checker& c) { return check(p, c); });
  }
}

}  // namespace danqing::app::verify
