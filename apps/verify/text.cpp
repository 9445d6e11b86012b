// Token ids and text features.
#include <algorithm>
#include <charconv>

#include "base/try.h"
#include "models/mistral3/model.h"
#include "models/qwen3/qwen3.h"
#include "pipeline/family.h"
#include "text/tokenizer.h"
#include "verify/stages.h"

namespace danqing::app::verify {
namespace {

using Encoder = Lazy<std::unique_ptr<mistral3::TextEncoder>>;

Result<TokenIds> ids_of(Golden& tokens, const std::string& prompt) {
  DQ_TRY(const std::vector<int64_t> ids, tokens.integers("ids." + prompt));
  return TokenIds(ids.begin(), ids.end());
}

std::shared_ptr<Encoder> make_encoder(const Model& m, ComputeType type, bool all_layers) {
  return std::make_shared<Encoder>([m, type, all_layers]() -> Result<std::unique_ptr<mistral3::TextEncoder>> {
    DQ_TRY(const ComponentFiles files, m.component("text_encoder"));
    const WeightPolicy policy = weight_policy(files, type);
    if (m.is_z_image()) {
      DQ_TRY(const mistral3::Architecture architecture, qwen3::architecture_of(files));
      return mistral3::TextEncoder::load_as(m.suite.device, files, architecture, all_layers, policy, {});
    }
    if (all_layers) return mistral3::TextEncoder::load_all(m.suite.device, files, policy);
    return mistral3::TextEncoder::load(m.suite.device, files, policy);
  });
}

/// Replaces every member of that name, however deep.
void replace_member(Json& json, const std::string& name, const Json& value) {
  if (json.is_object() && json.contains(name)) json[name] = value;
  if (json.is_structured())
    for (Json& child : json) replace_member(child, name, value);
}

Tensor one_axis(std::vector<float> v) {
  const auto n = static_cast<int64_t>(v.size());
  return Tensor({n}, std::move(v));
}

void add_all_layers(const Model& m, const std::shared_ptr<Golden>& g, const std::shared_ptr<Golden>& tokens) {
  std::map<std::string, std::vector<std::string>> layers;  // prompt -> keys "all.PROMPT.N"
  for (const std::string& key : g->keys_with("all.")) layers[key.substr(4, key.rfind('.') - 4)].push_back(key);
  if (layers.empty()) return;
  const auto encoder = make_encoder(m, ComputeType::f32, true);
  for (const auto& [prompt, keys] : layers)
    m.suite.add(m.stage("text_f32"), prompt + " all layers", g, keys,
                [g, tokens, encoder, prompt = prompt, keys = keys,
                 factor = m.suite.factors.matmul](Checker& c) -> Result<void> {
                  DQ_TRY(const TokenIds ids, ids_of(*tokens, prompt));
                  DQ_TRY(const auto* e, encoder->get());
                  std::map<std::string, Tensor> taps;
                  DQ_TRY([[maybe_unused]] const Tensor out,
                         (*e)->encode(ids, [&](const std::string& name, const Tensor& t) { taps[name] = t; }));
                  const Tolerance t = f32_tolerance(page::kText, f32_spread(g->json(), prompt), factor);
                  for (const std::string& key : keys) {
                    const auto tap = taps.find("all" + key.substr(key.rfind('.')));
                    if (tap == taps.end())
                      c.fail(key, "the encoder has no such layer");
                    else
                      c.compare(key, *g, key, tap->second, t);
                  }
                  return {};
                });
}

void check_rope(const Model& m, const std::shared_ptr<Golden>& g, const std::string& key,
                std::optional<int64_t> original, Checker& c, const ComponentFiles& files) {
  if (!files.config) return c.fail(key, "the text encoder has no config.json");
  Json config = *files.config;
  if (original) replace_member(config, "original_max_position_embeddings", *original);
  const std::string where = m.suite.label(files.path);
  const auto parsed = m.is_z_image() ? qwen3::parse_config(config, where) : mistral3::Config::parse(config, where);
  if (!parsed) return c.fail(key, parsed.error().message);
  const mistral3::RopeTable table = mistral3::rope_table(*parsed);
  c.compare(key, *g, key, one_axis(table.inv_freq), f32_tolerance(page::kText, 0, 1));
  if (const auto scaling = number_at(g->json(), {"rope_attention_scaling"}); scaling && !original)
    c.compare("attention factor", one_axis({static_cast<float>(*scaling)}), one_axis({table.attention_factor}),
              f32_tolerance(page::kText, 0, 1));
}

}  // namespace

void add_tokens(const Model& m) {
  const auto g = m.golden("tokens");
  const auto tokenizer = std::make_shared<Lazy<std::shared_ptr<const Tokenizer>>>(
      [dir = m.directory / "tokenizer"] { return Tokenizer::load(dir); });
  for (const std::string& prompt : g->names("ids.", ""))
    m.suite.add(m.stage("tokens"), prompt, g, {"ids." + prompt}, [g, tokenizer, prompt](Checker& c) -> Result<void> {
      const auto text = [&](const char* member) -> const Json* {
        const auto it = g->json().find(member);
        if (it == g->json().end() || !it->is_object() || !it->contains(prompt) || !(*it)[prompt].is_string())
          return nullptr;
        return &(*it)[prompt];
      };
      const Json* source = text("prompts");
      if (!source) return bad_input("[verify] {}: its JSON has no prompt '{}'", g->label(), prompt);
      DQ_TRY(const auto* tok, tokenizer->get());
      DQ_TRY(TokenIds ids, (*tok)->encode(source->get<std::string>(), true, true));
      if (ids.empty()) ids = {(*tok)->bos_id().value_or(0)};  // the pipeline's rule for an empty tokenisation
      c.same(prompt, *g, "ids." + prompt, std::vector<int64_t>(ids.begin(), ids.end()));
      if (const Json* decoded = text("decoded"))
        c.same(prompt + " decoded", decoded->get<std::string>(), (*tok)->decode(ids, true));
      return {};
    });
}

void add_text(const Model& m, const std::string& file) {
  const bool bf16 = file == "text_bf16";
  const auto g = m.golden(file), f32 = m.golden("text_f32"), tokens = m.golden("tokens");
  const auto encoder = make_encoder(m, bf16 ? ComputeType::bf16 : ComputeType::f32, false);
  for (const std::string& prompt : g->names("hidden.", "")) {
    const std::string key = "hidden." + prompt;
    m.suite.add(
        m.stage(file), prompt, g, {key},
        [g, f32, tokens, encoder, prompt, key, bf16, factor = m.suite.factors.matmul](Checker& c) -> Result<void> {
          DQ_TRY(const TokenIds ids, ids_of(*tokens, prompt));
          DQ_TRY(const auto* e, encoder->get());
          DQ_TRY(const Tensor got, (*e)->encode(ids));
          const Tolerance t = f32_tolerance(page::kText, f32_spread(f32->json(), prompt), factor);
          if (bf16) {
            auto measured = number_at(g->json(), {"measured", "bf16_vs_f32", prompt, "rel_l2"});
            if (!measured) measured = number_at(g->json(), {"measured", prompt, "rel_l2"});
            c.bf16(prompt, *g, key, *f32, key, got, measured, t.limit);
          }
          if (!bf16) c.compare(prompt, *g, key, got, t);
          return {};
        });
  }
  if (bf16) return;
  add_all_layers(m, g, tokens);
  if (g->has("rope.inv_freq"))
    m.suite.add(m.stage(file), "rope.inv_freq", g, {"rope.inv_freq"}, [m, g](Checker& c) -> Result<void> {
      DQ_TRY(const ComponentFiles files, m.component("text_encoder"));
      check_rope(m, g, "rope.inv_freq", {}, c, files);
      return {};
    });
}

void add_query_scale(const Model& m) {
  const std::string file = "text_llama4_scale";
  const auto g = m.golden(file), tokens = m.golden("tokens"), f32 = m.golden("text_f32");
  std::map<std::string, std::vector<std::string>> cases;  // the replaced length -> keys
  for (const std::string& key : g->keys_with("original")) cases[key.substr(8, key.find('.') - 8)].push_back(key);
  for (const auto& [number, keys] : cases) {
    int64_t original = 0;
    const auto [end, ec] = std::from_chars(number.data(), number.data() + number.size(), original);
    if (ec != std::errc() || end != number.data() + number.size() || original < 1)
      continue;  // counted with the leftovers
    m.suite.add(
        m.stage(file), "original" + number, g, keys,
        [m, g, tokens, f32, original, keys = keys, factor = m.suite.factors.matmul](Checker& c) -> Result<void> {
          DQ_TRY(ComponentFiles files, m.component("text_encoder"));
          const ComponentFiles stored = files;
          if (files.config) replace_member(*files.config, "original_max_position_embeddings", original);
          DQ_TRY(const auto encoder,
                 mistral3::TextEncoder::load(m.suite.device, files, weight_policy(files, ComputeType::f32)));
          for (const std::string& key : keys) {
            const std::string what = key.substr(key.find('.') + 1);
            if (what == "inv_freq") {
              check_rope(m, g, key, original, c, stored);
            } else if (what.starts_with("hidden.")) {
              const std::string prompt = what.substr(7);
              DQ_TRY(const TokenIds ids, ids_of(*tokens, prompt));
              DQ_TRY(const Tensor got, encoder->encode(ids));
              c.compare(key, *g, key, got, f32_tolerance(page::kText, f32_spread(f32->json(), prompt), factor));
            }
          }
          return {};
        });
  }
}

}  // namespace danqing::app::verify
