#include "bench/load.h"

#include <cstring>

#include "base/try.h"
#include "base/units.h"
#include "models/ernie_image/transformer.h"
#include "models/z_image/transformer.h"

namespace danqing::app {
namespace {

/// Opens and loads anew; returns the component whose bytes were loaded.
Result<ComponentFiles> load(const std::shared_ptr<Device>& device, const ComponentProvider& components,
                            uint64_t& weight_bytes) {
  DQ_TRY(const std::optional<ComponentFiles> files, components.get("transformer"));
  if (!files) return fail(ErrorCode::bad_input, "[bench] expected a transformer to load, got a model without one");
  if (is_z_image(files->config ? &*files->config : nullptr, files->source.get())) {
    DQ_TRY(const auto model, z_image::Transformer::load(device, *files, components.policy(*files)));
    weight_bytes = model->weight_bytes();
  } else {
    DQ_TRY(const auto model, ernie_image::Transformer::load(device, *files, components.policy(*files)));
    weight_bytes = model->weight_bytes();
  }
  return *files;
}

/// One word of each cache line: what memory has to deliver.
uint64_t touch(const TensorSource& source) {
  uint64_t sum = 0;
  for (const TensorInfo& t : source.tensors()) {
    const std::span<const std::byte> bytes = source.bytes(t);
    for (size_t i = 0; i + sizeof(uint64_t) <= bytes.size(); i += 64) {
      uint64_t word;
      std::memcpy(&word, bytes.data() + i, sizeof word);
      sum += word;
    }
  }
  return sum;
}

}  // namespace

Result<void> bench_load(const std::shared_ptr<Device>& device, const ComponentProvider& components, int repetitions,
                        const std::function<void(Measurement)>& on_row) {
  uint64_t weight_bytes = 0;
  volatile uint64_t sink = 0;
  const auto row = [&](Measurement m) {
    m.weight_bytes = weight_bytes;
    m.bytes_per_second = static_cast<double>(weight_bytes) / m.seconds;
    m.what += fmt::format(", {}/s", format_bytes(static_cast<uint64_t>(m.bytes_per_second)));
    on_row(std::move(m));
  };
  const auto read_all = [&]() -> Result<void> {
    DQ_TRY(const ComponentFiles files, load(device, components, weight_bytes));
    sink = touch(*files.source);
    return {};
  };
  DQ_CHECK(read_all());
  DQ_TRY(Measurement opened, measure("load", "transformer", repetitions, false, [&]() -> Result<void> {
           DQ_TRY([[maybe_unused]] const ComponentFiles files, load(device, components, weight_bytes));
           return {};
         }));
  row(std::move(opened));
  DQ_TRY(Measurement read, measure("load", "transformer and every byte", repetitions, false, read_all));
  row(std::move(read));
  const std::vector<std::byte> from(weight_bytes, std::byte{1});
  std::vector<std::byte> to(weight_bytes);
  DQ_TRY(Measurement copied, measure("load", "memcpy", repetitions, true, [&]() -> Result<void> {
           std::memcpy(to.data(), from.data(), weight_bytes);
           sink = static_cast<uint64_t>(to[weight_bytes / 2]);
           return {};
         }));
  row(std::move(copied));
  return {};
}

}  // namespace danqing::app
