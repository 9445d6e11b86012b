// How much memory an Engine may use, and what it decided to do with it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace danqing {

/// How weights that do not fit all at once share the device.
enum class Offload {
  automatic,  ///< the first of the following that fits
  none,       ///< all components stay on the device
  component,  ///< each component is on the device only while it computes
  stream,     ///< layers take turns; as many as fit stay
};

enum class VaeTiling {
  automatic,  ///< tiles only as small as the memory demands
  on,
  off,
};

struct MemoryOptions {
  /// Bytes of device memory that may be used, the reserve included; 0 = what the device has free. The CPU keeps to it
  /// as a card would.
  uint64_t device_memory = 0;
  /// Of these, bytes left to the driver, the desktop and fragmentation; empty = a tenth, at most 4 GiB.
  std::optional<uint64_t> reserve;
  uint64_t host_memory = 0;  ///< bytes; 0 = what the system has available
  Offload offload = Offload::automatic;
  VaeTiling vae_tiling = VaeTiling::automatic;
  /// Queries that an attention with written-out scores (cards, plain ggml) takes at once; 0 = by the scores' size. Our
  /// CPU kernels never write scores out.
  int attention_chunk = 0;
  /// "auto" (as stored, quantised only if nothing else fits or streaming costs more), "stored", or a type such as
  /// "q8_0", "q4_K" that the large matrices are quantised to while they are loaded.
  std::string weight_type = "auto";
};

/// Where the weights of one component are.
enum class Placement {
  resident,  ///< on the device from first use on
  offload,   ///< on the device while the component computes
  stream,    ///< layer by layer while it computes
};

struct ComponentPlan {
  std::string role;  ///< "pe", "text_encoder", "vae_encoder", "transformer", "vae", in the order of a job
  Placement placement = Placement::resident;
  std::string types;  ///< in which its weights are on the device: "bf16 + f32"
  bool quantized_on_load = false;
  uint64_t file_bytes = 0;              ///< in its files
  uint64_t weight_bytes = 0;            ///< all its weights on the device
  uint64_t held_bytes = 0;              ///< of these at the same time: less than all when streamed
  uint64_t compute_bytes = 0;           ///< intermediate results, caches and scratch while it computes
  int layers = 0, resident_layers = 0;  ///< of a streamed component
  uint64_t streamed_bytes = 0;          ///< copied for each pass through it
};

struct MemoryPlan {
  std::vector<ComponentPlan> components;
  std::string mode;                ///< "whole", "component offload", "layer streaming"
  int width = 0, height = 0;       ///< pixels
  int batch_size = 1;              ///< pictures denoised together
  int text_tokens = 0;             ///< of the longest prompt
  int vae_tile = 0;                ///< side in latents; 0 = the picture in one piece
  uint64_t device_memory = 0;      ///< allowed in all
  uint64_t reserve = 0;            ///< of these left free
  uint64_t device_peak = 0;        ///< bytes, exact
  uint64_t host_peak = 0;          ///< bytes of host memory besides the files' pages
  uint64_t host_files = 0;         ///< bytes of files that should stay in the page cache to be read once
  uint64_t disk_reads = 0;         ///< bytes read when nothing is cached
  std::string device;              ///< "cpu", "vulkan0"
  std::vector<std::string> notes;  ///< what was given up and why
  std::string better;              ///< the next better way: "whole"; empty when there is none
  uint64_t better_needs = 0;       ///< device memory (reserve included) from which that would fit
};

}  // namespace danqing
