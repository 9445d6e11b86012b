// A place to compute: the CPU or a card, opened through ggml. Owns the backend; knows its memory; counts what is
// allocated. Thread rule: list_devices() from anywhere; one Device computes for one thread at a time.
#pragma once
#include <ggml-alloc.h>
#include <ggml-backend.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "danqing/cpu.h"
#include "danqing/result.h"

namespace danqing {

struct DeviceInfo {
  std::string name;                            ///< "cpu", "vulkan0", "hip0", "cuda0"
  std::string backend;                         ///< "CPU", "Vulkan", "HIP", "CUDA"
  std::string description;                     ///< the card's or the processor's name
  uint64_t memory_total = 0, memory_free = 0;  ///< bytes; the host's for the CPU
  std::string unusable;                        ///< why it must not compute, for people; usually empty
};
std::vector<DeviceInfo> list_devices();
/// Names of the usable ones, in the order in which "auto" takes them; the CPU last.
std::vector<std::string> devices_by_preference();
std::string ggml_version_text();  ///< "0.20.2"
std::string cpu_features();       ///< "AVX2 FMA F16C AVX512F ..." as the processor reports

namespace kernels {
class Pool;
}
class PagedTensors;

/// The threads also serve the conversion of weights for a card.
using DeviceOptions = CpuOptions;

class Device {
 public:
  /// "auto" (best card, else the CPU), or a name from list_devices(). Unknown names are usage errors listing the known.
  static Result<std::shared_ptr<Device>> open(std::string_view name, const DeviceOptions& options = {});
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceInfo& info() const { return info_; }
  int threads() const { return threads_; }  ///< of the host: for the CPU's operations and for converting weights
  bool is_cpu() const { return is_cpu_; }
  /// The threads of our own kernels; null: plain ggml computes (a card, or CpuKernels::ggml).
  kernels::Pool* pool() const { return pool_.get(); }
  CpuPrecision cpu_precision() const { return cpu_precision_; }
  /// What computes, for people: "danqing AVX512-VNNI, f32", "ggml".
  std::string kernels_text() const;
  ggml_backend_t backend() const { return backend_; }
  ggml_backend_buffer_type_t buffer_type() const;

  /// Device memory comes from the next three functions only: all count it, all keep to the limit, none returns null.
  /// Error does_not_fit names the bytes and `what`. Buffers and charges must be freed before the Device.
  struct BufferDeleter {
    Device* device = nullptr;
    void operator()(ggml_backend_buffer_t b) const;
  };
  using Buffer = std::unique_ptr<struct ggml_backend_buffer, BufferDeleter>;
  Result<Buffer> allocate(size_t bytes, std::string_view what);

  struct GraphBufferDeleter {
    Device* device = nullptr;
    size_t bytes = 0;
    void operator()(ggml_gallocr* g) const;
  };
  /// The compute buffer of one graph; the graph's tensors are placed in it.
  using GraphBuffer = std::unique_ptr<struct ggml_gallocr, GraphBufferDeleter>;
  Result<GraphBuffer> allocate_graph(ggml_cgraph* graph, std::string_view what);
  /// The bytes that allocate_graph would take; allocates nothing.
  size_t measure_graph(ggml_cgraph* graph) const;

  /// Memory in use that no buffer of ours holds: mapped weights that the CPU reads where they lie, room for
  /// conversions. Counted as long as the object lives.
  class Charge {
   public:
    Charge() = default;
    Charge(Charge&& other) noexcept
        : device_(std::exchange(other.device_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Charge& operator=(Charge&& other) noexcept;
    ~Charge() { shrink(0); }
    uint64_t bytes() const { return bytes_; }
    void shrink(uint64_t bytes);  ///< gives back all beyond `bytes`

   private:
    friend class Device;
    Charge(Device* device, uint64_t bytes) : device_(device), bytes_(bytes) {}
    Device* device_ = nullptr;
    uint64_t bytes_ = 0;
  };
  Result<Charge> charge(uint64_t bytes, std::string_view what);

  /// Memory that plain ggml's operations on the CPU take while this graph runs, from elsewhere. 0 on cards, and where
  /// ggml's CPU backend is a module, which does not tell.
  size_t work_bytes(ggml_cgraph* graph) const;

  uint64_t allocated() const { return allocated_; }
  uint64_t peak_allocated() const { return peak_; }
  void reset_peak() { peak_ = allocated_; }
  uint64_t memory_free() const;  ///< bytes, now; for the CPU what the host has available
  /// Queries that attention takes at once where it writes its scores out; 0 = as many as a bounded buffer holds.
  int attention_chunk() const { return attention_chunk_; }
  void set_attention_chunk(int queries) { attention_chunk_ = queries; }
  /// Attention by the card's own kernel, which has no place for written scores. Off until a trial has shown that it is
  /// right and faster (src/tune): some kernels work in fp16 whatever precision is asked.
  bool flash_attention() const { return flash_attention_; }
  void set_flash_attention(bool on) { flash_attention_ = on; }
  /// Allocations beyond this many bytes in all fail with does_not_fit.
  void set_limit(uint64_t bytes) { limit_ = bytes; }
  std::optional<uint64_t> limit() const;
  /// The largest buffer that the device's driver promises to give; what is placed is split accordingly.
  size_t largest_buffer() const;
  /// For tests: a device whose driver refuses larger buffers of weights and state.
  void set_largest_buffer(size_t bytes) { largest_buffer_ = bytes; }
  /// For tests: the n-th allocation from now (1 = the next one) fails; 0 turns it off.
  void fail_allocation(int n) { fail_in_ = n; }

  /// Weights of this device that are not, or not always, in memory. They enter and leave themselves; a Runner asks
  /// them.
  std::vector<PagedTensors*>& paged() { return paged_; }

  /// Polled between operations on the CPU while a graph runs; null to remove. Ignored by backends without it.
  void set_abort_callback(ggml_abort_callback callback, void* data) const;

 private:
  Device();
  Result<void> admit(uint64_t bytes, std::string_view what);
  Result<void> check_host_memory(uint64_t bytes, std::string_view what) const;
  void count(uint64_t bytes);
  DeviceInfo info_;
  ggml_backend_t backend_ = nullptr;
  int threads_ = 1;
  bool is_cpu_ = false;
  std::unique_ptr<kernels::Pool> pool_;
  CpuPrecision cpu_precision_ = CpuPrecision::automatic;
  uint64_t allocated_ = 0, peak_ = 0, limit_ = std::numeric_limits<uint64_t>::max();
  int fail_in_ = 0;
  size_t largest_buffer_ = std::numeric_limits<size_t>::max();
  std::vector<PagedTensors*> paged_;
  int attention_chunk_ = 0;
  bool flash_attention_ = false;
};

}  // namespace danqing
