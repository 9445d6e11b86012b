// Models with random weights in files, deeper than those of the fixtures, behind one face: what is asked here of one
// kind must hold for all.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "device/weights.h"
#include "testing/testing.h"

namespace danqing::testing {

/// A loaded model.
class Subject {
 public:
  virtual ~Subject() = default;
  /// A forward pass in one of two shapes; a language model's is a prompt and two single tokens.
  virtual Result<std::vector<float>> run(int shape, const TapSink& taps = {},
                                         const std::function<bool()>& cancelled = {}) = 0;
  virtual Result<size_t> measure(int shape) = 0;  ///< what run() takes besides the weights
  virtual const WeightSizes& sizes() const = 0;
};

/// How matrices are stored.
enum class Stored { f32, bf16, f8, scaled_f8, q8_0 };

struct Kind {
  std::string name;
  int groups = 0;  ///< 0: not of layers
  bool has_taps = false, can_cancel = false;
  std::function<ComponentFiles(const std::filesystem::path&, Stored)> write;  ///< into an empty directory
  std::function<Result<std::unique_ptr<Subject>>(std::shared_ptr<Device>, const ComponentFiles&, const WeightPolicy&)>
      load;
};
/// ERNIE-Image and Z-Image denoisers, Ministral and Qwen text encoders, Ministral's language model, the VAE's decoder.
const std::vector<Kind>& kinds();
inline void PrintTo(const Kind& k, std::ostream* out) { *out << k.name; }

std::shared_ptr<Device> open_cpu(int threads = 1, CpuKernels kernels = CpuKernels::danqing);

}  // namespace danqing::testing
