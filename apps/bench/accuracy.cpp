#include "bench/accuracy.h"

#include <cmath>

#include "base/try.h"
#include "models/ernie_image/transformer.h"
#include "sampling/random.h"

namespace danqing::app {
namespace {

Tensor noise(Shape shape, uint64_t seed) {
  Tensor t(std::move(shape));
  CpuGenerator(seed).randn(t.data);
  return t;
}

double relative_l2(const Tensor& got, const Tensor& expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.data.size(); ++i) {
    const double e = expected.data[i], d = got.data[i] - e;
    difference += d * d, norm += e * e;
  }
  return std::sqrt(difference / norm);
}

}  // namespace

Result<void> bench_accuracy(const CpuOptions& cpu, const ComponentProvider& components, const BenchOptions& o,
                            const std::function<void(Measurement)>& on_row) {
  DQ_TRY(const std::optional<ComponentFiles> files, components.get("transformer"));
  if (!files || is_z_image(files->config ? &*files->config : nullptr, files->source.get()))
    return usage_error("[--stage] accuracy needs an ERNIE-Image transformer");
  const auto pass = [&](CpuPrecision precision, const WeightPolicy& policy, std::string& kernels,
                        double& seconds) -> Result<Tensor> {
    CpuOptions options = cpu;
    options.precision = precision;
    DQ_TRY(const std::shared_ptr<Device> device, Device::open("cpu", options));
    kernels = device->kernels_text();
    DQ_TRY(const auto model, ernie_image::Transformer::load(device, *files, policy));
    const ernie_image::Config& c = model->config();
    const Tensor latents = noise({1, c.in_channels, o.height / 16, o.width / 16}, 1);
    const std::vector<Tensor> text{noise({o.text_tokens, c.text_in_dim}, 2)};
    const std::vector<float> timestep{500.0f};
    Tensor out;
    DQ_TRY(const Measurement m, measure("", "", 1, false, [&]() -> Result<void> {
             DQ_TRY(out, model->forward(latents, text, timestep));
             return {};
           }));
    seconds = m.seconds;
    return out;
  };
  const WeightPolicy stored = components.policy(*files);
  std::string kernels;
  double seconds = 0;
  DQ_TRY(const Tensor exact, pass(CpuPrecision::f32, stored, kernels, seconds));
  struct Format {
    const char* name;
    CpuPrecision precision;
    std::optional<DType> kept;
  };
  for (const Format& f : {Format{"bf16", CpuPrecision::bf16, {}}, Format{"i16", CpuPrecision::i16, {}},
                          Format{"i8", CpuPrecision::i8, {}}, Format{"q8_0 weights", CpuPrecision::f32, DType::q8_0},
                          Format{"q4_K weights", CpuPrecision::f32, DType::q4_k}}) {
    DQ_TRY(const Tensor got, pass(f.precision, f.kept ? WeightPolicy{f.kept} : stored, kernels, seconds));
    if (!f.kept && kernels.compare(kernels.size() - std::string(f.name).size(), std::string::npos, f.name) != 0)
      continue;
    Measurement m;
    m.stage = "accuracy";
    m.seconds = m.min_seconds = seconds;
    m.relative_l2 = relative_l2(got, exact);
    m.what = fmt::format("{} against f32 products: relative L2 {:.2e}", f.name, m.relative_l2);
    m.peak_rss = peak_rss_bytes();
    on_row(std::move(m));
  }
  return {};
}

}  // namespace danqing::app
