// What Z-Image computes in another way: chat prompts, and a transformer over lists of latents.
#include <functional>
#include <map>

#include "base/try.h"
#include "models/z_image/transformer.h"
#include "pipeline/z_image_family.h"
#include "verify/stages.h"

namespace danqing::app::verify {
namespace {

struct ChatTokenizer {
  std::shared_ptr<const Tokenizer> tokenizer;
  ChatTemplate chat;
};

const Json* text_of(const Golden& g, const char* member, const std::string& prompt) {
  const auto it = g.json().find(member);
  if (it == g.json().end() || !it->is_object() || !it->contains(prompt) || !(*it)[prompt].is_string()) return nullptr;
  return &(*it)[prompt];
}

/// padded_ids.X and padded_mask.X: the ids in a row of the pipeline's length.
void check_padded(Golden& g, const std::string& prompt, const ZImagePrompt& p, const Tokenizer& tokenizer, Checker& c) {
  if (!g.has("padded_ids." + prompt)) return;
  std::vector<int64_t> ids(p.ids.begin(), p.ids.end()), mask(ids.size(), 1);
  ids.resize(kZImageTokens, tokenizer.pad_id().value_or(0));
  mask.resize(kZImageTokens, 0);
  c.same(prompt + " padded", g, "padded_ids." + prompt, ids);
  c.same(prompt + " padded", g, "padded_mask." + prompt, mask);
}

using Transformer = Lazy<std::unique_ptr<z_image::Transformer>>;

std::vector<std::string> owed_keys(const Golden& g, const std::string& name) {
  std::vector<std::string> keys = g.keys_with(name + ".tap.");
  for (const std::string& k : g.keys_with(name + ".out.")) keys.push_back(k);
  return keys;
}

/// One forward pass; judges every value that it owes, and one that is missing is a failed row.
Result<void> check_forward(Transformer& transformer, const ZImageInputs& in, const std::string& name,
                           const std::vector<std::string>& wanted, Checker& c,
                           const std::function<void(const std::string& key, const Tensor& value)>& judge) {
  std::map<std::string, Tensor> got;
  TapSink sink;
  if (std::any_of(wanted.begin(), wanted.end(), [&](const auto& k) { return k.starts_with(name + ".tap."); }))
    sink = [&](const std::string& tap, const Tensor& t) { got[name + ".tap." + tap] = t; };
  DQ_TRY(auto* model, transformer.get());
  DQ_TRY(std::vector<Tensor> out, (*model)->forward(in.latents, in.captions, in.times, sink));
  for (size_t i = 0; i < out.size(); ++i) got[fmt::format("{}.out.{}", name, i)] = std::move(out[i]);
  for (const std::string& key : wanted) {
    const auto it = got.find(key);
    if (it == got.end())
      c.fail(key, "the transformer gave no value of this name");
    else
      judge(key, it->second);
  }
  return {};
}

Tolerance tolerance_for(const Golden& f32, const std::string& name, const std::string& key, const DeviceFactors& f) {
  if (key.ends_with(".pos_ids")) return Tolerance::exact();
  if (key.find(".rope.") != std::string::npos)
    return {Measure::max_abs, 1.2e-7, 1, "an ulp of values up to 1: the host's cosine and torch's"};
  return f32_tolerance(page::kTransformer, f32_spread(f32.json(), name), f.matmul);
}

}  // namespace

Result<ZImageInputs> z_image_inputs(Golden& dit, const std::string& name) {
  ZImageInputs in;
  DQ_TRY(Tensor times, dit.tensor(name + ".in.t", 1));
  in.times = std::move(times.data);
  for (size_t i = 0; i < in.times.size(); ++i) {
    DQ_TRY(Tensor latents, dit.tensor(fmt::format("{}.in.latents.{}", name, i), 3));
    DQ_TRY(Tensor caption, dit.tensor(fmt::format("{}.in.cap.{}", name, i), 2));
    in.latents.push_back(std::move(latents));
    in.captions.push_back(std::move(caption));
  }
  return in;
}

void add_z_image_tokens(const Model& m) {
  const auto g = m.golden("tokens");
  const auto shared =
      std::make_shared<Lazy<ChatTokenizer>>([dir = m.directory / "tokenizer"]() -> Result<ChatTokenizer> {
        DQ_TRY(std::shared_ptr<const Tokenizer> tokenizer, Tokenizer::load(dir));
        DQ_TRY(ChatTemplate chat, z_image_template(dir));
        return ChatTokenizer{std::move(tokenizer), std::move(chat)};
      });
  for (const std::string& prompt : g->names("ids.", "")) {
    std::vector<std::string> keys{"ids." + prompt};
    for (const char* more : {"padded_ids.", "padded_mask."})
      if (g->has(more + prompt)) keys.push_back(more + prompt);
    m.suite.add(m.stage("tokens"), prompt, g, keys, [g, shared, prompt](Checker& c) -> Result<void> {
      const Json* source = text_of(*g, "prompts", prompt);
      if (!source) return bad_input("[verify] {}: its JSON has no prompt '{}'", g->label(), prompt);
      DQ_TRY(const auto* chat, shared->get());
      DQ_TRY(const ZImagePrompt p, z_image_prompt(*chat->tokenizer, chat->chat, source->get<std::string>()));
      c.same(prompt, *g, "ids." + prompt, std::vector<int64_t>(p.ids.begin(), p.ids.end()));
      if (const Json* rendered = text_of(*g, "rendered", prompt))
        c.same(prompt + " rendered", rendered->get<std::string>(), p.rendered);
      check_padded(*g, prompt, p, *chat->tokenizer, c);
      return {};
    });
  }
}

void add_z_image_transformer(const Model& m, const std::string& file) {
  const bool bf16 = file == "dit_bf16";
  const auto g = m.golden(file), f32 = m.golden("dit_f32");
  const auto transformer = std::make_shared<Transformer>([m, bf16]() -> Result<std::unique_ptr<z_image::Transformer>> {
    DQ_TRY(const ComponentFiles files, m.component("transformer", bf16));
    return z_image::Transformer::load(m.suite.device, files,
                                      weight_policy(files, bf16 ? ComputeType::bf16 : ComputeType::f32));
  });
  for (const std::string& name : f32->names("", ".in.t")) {
    const std::vector<std::string> wanted = owed_keys(*g, name);
    std::vector<std::string> keys = wanted;
    if (!bf16)
      for (const std::string& k : g->keys_with(name + ".in.")) keys.push_back(k);
    if (wanted.empty()) continue;
    m.suite.add(m.stage(file), name, g, keys,
                [g, f32, transformer, name, wanted, bf16, factors = m.suite.factors](Checker& c) -> Result<void> {
                  DQ_TRY(ZImageInputs in, z_image_inputs(*f32, name));
                  if (bf16)  // the reference casts latents and captions; the time stays f32
                    for (auto* list : {&in.latents, &in.captions})
                      for (Tensor& t : *list)
                        for (float& v : t.data) v = round_bf16(v);
                  return check_forward(*transformer, in, name, wanted, c, [&](const auto& key, const Tensor& value) {
                    const Tolerance t = tolerance_for(*f32, name, key, factors);
                    if (!bf16 || t.measure != Measure::relative_l2) return c.compare(key, *g, key, value, t);
                    // Measured for the outputs; a tap's own error is read off the two goldens.
                    const auto measured = key.find(".tap.") == std::string::npos
                                              ? number_at(g->json(), {"measured", name, "rel_l2"})
                                              : std::nullopt;
                    c.bf16(key, *g, key, *f32, key, value, measured, t.limit);
                  });
                });
  }
}

}  // namespace danqing::app::verify
