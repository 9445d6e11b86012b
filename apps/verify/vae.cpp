// The autoencoder: decoding, encoding, and the scaling of latents.
#include "models/vae/vae.h"

#include <charconv>
#include <cmath>

#include "base/file.h"
#include "base/try.h"
#include "image/convert.h"
#include "pipeline/family.h"
#include "sampling/random.h"
#include "verify/stages.h"

namespace danqing::app::verify {
namespace {

using Autoencoder = Lazy<std::unique_ptr<vae::Vae>>;

std::shared_ptr<Autoencoder> make_vae(const Model& m, ComputeType type) {
  return std::make_shared<Autoencoder>([m, type]() -> Result<std::unique_ptr<vae::Vae>> {
    DQ_TRY(const ComponentFiles files, m.component("vae"));
    return vae::Vae::load(m.suite.device, files, vae::Part::both, weight_policy(files, type));
  });
}

struct Shared {
  std::shared_ptr<Golden> g;
  std::shared_ptr<Autoencoder> f32, bf16;
  DeviceFactors factors;
  bool run_f32, run_bf16;

  Tolerance tolerance(const std::string& name) const {
    return f32_tolerance(page::kVae, f32_spread(g->json(), name), factors.matmul);
  }
  std::optional<double> torch_error(const std::string& name) const {
    return number_at(g->json(), {"measured", name, "bf16_vs_f32", "rel_l2"});
  }
};

Tensor rounded(Tensor t) {
  for (float& v : t.data) v = round_bf16(v);
  return t;
}

/// The golden picture [n, H, W, 3] or [H, W, 3] as [n, H, W, 3].
Result<Tensor> golden_pixels(Golden& g, const std::string& key) {
  DQ_TRY(Tensor t, g.tensor(key));
  if (t.shape.size() == 3) t.shape.insert(t.shape.begin(), 1);
  if (t.shape.size() != 4 || t.shape[3] != 3 || t.count() == 0)
    return bad_input("[verify] {}: '{}' expected a picture [n, H, W, 3], got {}", g.label(), key, to_string(t.shape));
  return t;
}

Result<void> check_decode(const Shared& s, const std::string& name, Checker& c) {
  DQ_TRY(const Tensor z, s.g->tensor(name + ".in", 4));
  const std::string out = name + ".out", out_bf16 = name + ".out_bf16", u8 = name + ".u8";
  if (s.run_f32) {
    DQ_TRY(auto* model, s.f32->get());
    const std::vector<std::string> tap_keys = s.g->keys_with(name + ".tap.");
    std::map<std::string, Tensor> taps;
    TapSink sink;
    if (!tap_keys.empty()) sink = [&](const std::string& tap, const Tensor& t) { taps[name + ".tap." + tap] = t; };
    DQ_TRY(const Tensor got, (*model)->decode(z, sink));
    c.compare(out, *s.g, out, got, s.tolerance(name));
    for (const std::string& key : tap_keys) {
      if (taps.contains(key))
        c.compare(key, *s.g, key, taps[key], s.tolerance(name));
      else
        c.fail(key, "the decoder gave no value of this name");
    }
    if (s.g->has(u8)) {
      DQ_TRY(const std::vector<Image> images, to_images(got));
      c.compare(u8, *s.g, u8, pixels(images), picture_tolerance(s.factors, {}));
    }
  } else {
    for (const std::string& key : s.g->keys_with(name + "."))
      if (key != out_bf16) s.g->mark(key, Mark::not_selected);
  }
  if (s.run_bf16 && (s.g->has(out_bf16) || s.torch_error(name))) {
    DQ_TRY(auto* model, s.bf16->get());
    DQ_TRY(const Tensor got, (*model)->decode(rounded(z)));
    c.bf16(out_bf16, *s.g, out_bf16, *s.g, out, got, s.torch_error(name), s.tolerance(name).limit);
  }
  s.g->mark(out_bf16, Mark::not_selected);
  return {};
}

Result<void> check_encode(const Shared& s, const std::string& name, Checker& c) {
  DQ_TRY(const Tensor picture, s.g->tensor(name + ".in", 4));
  const Tolerance t = s.tolerance(name);
  const auto has = [&](const char* what) { return s.g->has(name + what); };
  if (s.run_f32) {
    DQ_TRY(auto* model, s.f32->get());
    DQ_TRY(const vae::Vae::Posterior q, (*model)->encode(picture));
    if (has(".mean")) c.compare(name + ".mean", *s.g, name + ".mean", q.mean, t);
    if (has(".logvar")) c.compare(name + ".logvar", *s.g, name + ".logvar", q.logvar, t);
    if (has(".scaled")) c.compare(name + ".scaled", *s.g, name + ".scaled", vae::scale(q.mean, (*model)->config()), t);
    const std::vector<int64_t>& patch = (*model)->config().patch_size;
    const bool whole = q.mean.size(2) % patch[0] == 0 && q.mean.size(3) % patch[1] == 0;
    const Tensor patchified = whole ? vae::patchify(q.mean, patch) : Tensor();
    if (has(".patchified")) c.compare(name + ".patchified", *s.g, name + ".patchified", patchified, t);
    if (has(".normalised") && whole && (*model)->bn_mean().size() == static_cast<size_t>(patchified.size(1)))
      c.compare(name + ".normalised", *s.g, name + ".normalised",
                vae::normalise(patchified, (*model)->bn_mean(), (*model)->bn_std()), t);
    for (const std::string& seed_text : s.g->names(name + ".sample_seed", "")) {
      uint64_t seed = 0;
      std::from_chars(seed_text.data(), seed_text.data() + seed_text.size(), seed);
      Tensor sample(q.mean.shape);
      CpuGenerator(seed).randn(sample.data);
      for (size_t i = 0; i < sample.data.size(); ++i)
        sample.data[i] = q.mean.data[i] + std::exp(0.5f * q.logvar.data[i]) * sample.data[i];
      const std::string key = name + ".sample_seed" + seed_text;
      c.compare(key, *s.g, key, sample, t);
    }
    if (has(".image_u8")) {
      DQ_TRY(const Tensor u8, golden_pixels(*s.g, name + ".image_u8"));
      const Image image{static_cast<int>(u8.size(2)), static_cast<int>(u8.size(1)), {u8.data.begin(), u8.data.end()}};
      c.compare(name + ".in", picture, from_image(image), {Measure::max_abs, 1.2e-7, 1, "1 ulp of values up to 1"});
      s.g->mark(name + ".image_u8", Mark::compared);
    }
  } else {
    for (const std::string& key : s.g->keys_with(name + ".")) s.g->mark(key, Mark::not_selected);
  }
  if (s.run_bf16 && s.torch_error(name)) {  // measured, though no bf16 golden is kept
    DQ_TRY(auto* model, s.bf16->get());
    DQ_TRY(const vae::Vae::Posterior q, (*model)->encode(rounded(picture)));
    c.bf16(name + ".mean in bf16", *s.g, "", *s.g, name + ".mean", q.mean, s.torch_error(name), t.limit);
  }
  return {};
}

Result<void> check_denormalise(const Shared& s, Checker& c) {
  DQ_TRY(const Tensor in, s.g->tensor("denorm.in", 4));
  DQ_TRY(auto* model, s.f32->get());
  const vae::Vae& v = **model;
  const Tolerance t = f32_tolerance(page::kDenormalise, 0, 1);  // plain arithmetic on the host, on every device
  const auto statistics = [](const std::vector<float>& x) {
    Tensor out;
    out.shape = {static_cast<int64_t>(x.size())};
    out.data = x;
    return out;
  };
  if (!v.config().has_batch_norm) {
    c.compare("denorm.out", *s.g, "denorm.out", vae::unscale(in, v.config()), t);
    return {};
  }
  if (static_cast<int64_t>(v.bn_mean().size()) != in.size(1))
    return bad_input("[verify] {}: 'denorm.in' expected {} channels, got {}", s.g->label(), v.bn_mean().size(),
                     in.size(1));
  const Tensor scaled = vae::denormalise(in, v.bn_mean(), v.bn_std());
  const std::map<std::string, Tensor> got{{"denorm.bn_mean", statistics(v.bn_mean())},
                                          {"denorm.bn_std", statistics(v.bn_std())},
                                          {"denorm.scaled", scaled},
                                          {"denorm.unpatchified", vae::unpatchify(scaled, v.config().patch_size)}};
  for (const auto& [key, value] : got)
    if (s.g->has(key)) c.compare(key, *s.g, key, value, t);
  return {};
}

/// golden/png/encode_HxW.png is the picture of encode.HxW.
void add_encoded_picture(const Model& m, const Shared& s, const std::string& size) {
  const std::filesystem::path file = m.golden_directory() / "png" / ("encode_" + size + ".png");
  std::error_code ec;
  if (!std::filesystem::exists(file, ec)) return;
  m.suite.add(m.stage("png"), file.stem().string(), m.suite.entries(file, {"picture"}), {"picture"},
              [s, size, file, png = m.suite.entries(file, {"picture"})](Checker& c) -> Result<void> {
                DQ_TRY(const std::string bytes, read_text(file));
                DQ_TRY(const Image image, decode_image(bytes));
                DQ_TRY(const Tensor expected, golden_pixels(*s.g, "encode." + size + ".image_u8"));
                c.compare(file.stem().string(), expected, pixels({image}), Tolerance::exact());
                png->mark("picture", Mark::compared);
                return {};
              });
}

}  // namespace

void add_vae(const Model& m) {
  const Shared s{m.golden("vae"), make_vae(m, ComputeType::f32), make_vae(m, ComputeType::bf16),
                 m.suite.factors, m.suite.options.f32,           m.suite.options.bf16};
  const std::string stage = m.stage("vae");
  for (const std::string& size : s.g->names("decode.", ".in")) {
    const std::string name = "decode." + size;
    m.suite.add(stage, name, s.g, s.g->keys_with(name + "."),
                [s, name](Checker& c) { return check_decode(s, name, c); });
  }
  for (const std::string& size : s.g->names("encode.", ".in")) {
    const std::string name = "encode." + size;
    m.suite.add(stage, name, s.g, s.g->keys_with(name + "."),
                [s, name](Checker& c) { return check_encode(s, name, c); });
    if (s.run_f32 && s.g->has(name + ".image_u8")) add_encoded_picture(m, s, size);
  }
  if (s.g->has("denorm.in"))
    m.suite.add(stage, "denorm", s.g, s.g->keys_with("denorm."), [s](Checker& c) { return check_denormalise(s, c); });
}

}  // namespace danqing::app::verify
