// The denoising transformer.
#include <functional>
#include <map>

#include "base/try.h"
#include "models/ernie_image/transformer.h"
#include "pipeline/family.h"
#include "sampling/flow_match.h"
#include "verify/stages.h"

namespace danqing::app::verify {
namespace {

using Transformer = Lazy<std::unique_ptr<ernie_image::Transformer>>;

std::shared_ptr<Transformer> make_transformer(const Model& m, bool bf16_files, ComputeType type) {
  return std::make_shared<Transformer>([m, bf16_files, type]() -> Result<std::unique_ptr<ernie_image::Transformer>> {
    DQ_TRY(const ComponentFiles files, m.component("transformer", bf16_files));
    return ernie_image::Transformer::load(m.suite.device, files, weight_policy(files, type));
  });
}

/// One forward pass; the taps only where the golden has some for this case.
Result<std::map<std::string, Tensor>> forward(Transformer& transformer, const TransformerInputs& in,
                                              const std::string& name, bool taps) {
  std::map<std::string, Tensor> results;
  TapSink sink;
  if (taps) sink = [&](const std::string& tap, const Tensor& t) { results[name + ".tap." + tap] = t; };
  DQ_TRY(auto* model, transformer.get());
  DQ_TRY(results[name + ".out"], (*model)->forward(in.latents, in.text, in.timesteps, sink));
  return results;
}

/// Names of cases: X of "X.out".
std::vector<std::string> case_keys(const Golden& g, const std::string& name) {
  std::vector<std::string> keys = g.keys_with(name + ".tap.");
  keys.push_back(name + ".out");
  return keys;
}

Tolerance tolerance_for(const Golden& f32, const std::string& name, double factor) {
  return f32_tolerance(page::kTransformer, f32_spread(f32.json(), name), factor);
}

/// Judges every value that a forward pass owes; one that is missing is a failed row.
void each_value(const std::vector<std::string>& wanted, const std::map<std::string, Tensor>& got, Checker& c,
                const std::function<void(const std::string& key, const Tensor& value)>& judge) {
  for (const std::string& key : wanted) {
    const auto it = got.find(key);
    if (it == got.end())
      c.fail(key, "the transformer gave no value of this name");
    else
      judge(key, it->second);
  }
}

}  // namespace

Result<TransformerInputs> transformer_inputs(Golden& dit, const std::string& name) {
  const std::string in = name + ".in.";
  TransformerInputs out;
  DQ_TRY(out.latents, dit.tensor(in + "latents", 4));
  DQ_TRY(Tensor timesteps, dit.tensor(in + "timestep", 1));
  DQ_TRY(const Tensor text, dit.tensor(in + "text", 3));
  DQ_TRY(const std::vector<int64_t> lengths, dit.integers(in + "text_lens"));
  if (lengths.size() != static_cast<size_t>(text.size(0)))
    return bad_input("[verify] {}: '{}text_lens' expected {} lengths, got {}", dit.label(), in, text.size(0),
                     lengths.size());
  out.timesteps = std::move(timesteps.data);
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 1 || lengths[i] > text.size(1))
      return bad_input("[verify] {}: '{}text_lens' expected lengths from 1 to {}, got {}", dit.label(), in,
                       text.size(1), lengths[i]);
    out.text.push_back(slice(item(text, static_cast<int64_t>(i)), 0, lengths[i]));
  }
  return out;
}

void add_transformer(const Model& m) {
  const auto g = m.golden("dit_f32");
  const auto transformer = make_transformer(m, false, ComputeType::f32);
  for (const std::string& name : g->names("", ".out")) {
    std::vector<std::string> keys = case_keys(*g, name);
    for (const std::string& k : g->keys_with(name + ".in.")) keys.push_back(k);
    m.suite.add(m.stage("dit_f32"), name, g, keys,
                [g, transformer, name, factor = m.suite.factors.matmul](Checker& c) -> Result<void> {
                  DQ_TRY(const TransformerInputs in, transformer_inputs(*g, name));
                  const std::vector<std::string> wanted = case_keys(*g, name);
                  DQ_TRY(const auto got, forward(*transformer, in, name, wanted.size() > 1));
                  each_value(wanted, got, c, [&](const std::string& key, const Tensor& value) {
                    c.compare(key, *g, key, value, tolerance_for(*g, name, factor));
                  });
                  return {};
                });
  }
}

void add_transformer_bf16_weights(const Model& m) {
  const auto g = m.golden("dit_bf16weights_f32math"), f32 = m.golden("dit_f32");
  const auto transformer = make_transformer(m, true, ComputeType::f32);
  for (const std::string& name : g->names("", ".out"))
    m.suite.add(m.stage("dit_bf16weights_f32math"), name, g, {name + ".out"},
                [g, f32, transformer, name, factor = m.suite.factors.matmul](Checker& c) -> Result<void> {
                  DQ_TRY(const TransformerInputs in, transformer_inputs(*f32, name));
                  DQ_TRY(auto got, forward(*transformer, in, name, false));
                  c.compare(name + ".out", *g, name + ".out", got[name + ".out"], tolerance_for(*f32, name, factor));
                  return {};
                });
}

void add_transformer_bf16(const Model& m) {
  const auto g = m.golden("dit_bf16"), f32 = m.golden("dit_f32");
  const auto transformer = make_transformer(m, true, ComputeType::bf16);
  for (const std::string& name : g->names("", ".out"))
    m.suite.add(m.stage("dit_bf16"), name, g, case_keys(*g, name),
                [g, f32, transformer, name, factor = m.suite.factors.matmul](Checker& c) -> Result<void> {
                  DQ_TRY(TransformerInputs in, transformer_inputs(*f32, name));
                  // The reference casts every input, the timestep too: that rounding is a rule and no noise.
                  for (float& v : in.latents.data) v = round_bf16(v);
                  for (Tensor& t : in.text)
                    for (float& v : t.data) v = round_bf16(v);
                  for (float& t : in.timesteps) t = timestep_as(t, WorkType::bf16);
                  const std::vector<std::string> wanted = case_keys(*g, name);
                  DQ_TRY(const auto got, forward(*transformer, in, name, wanted.size() > 1));
                  each_value(wanted, got, c, [&](const std::string& key, const Tensor& value) {
                    // Measured for the output; a tap's own error is read off the two goldens.
                    const auto measured =
                        key == name + ".out" ? number_at(g->json(), {"measured", name, "rel_l2"}) : std::nullopt;
                    c.bf16(key, *g, key, *f32, key, value, measured, tolerance_for(*f32, name, factor).limit);
                  });
                  return {};
                });
}

}  // namespace danqing::app::verify
