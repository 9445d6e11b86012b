#include "device/device.h"

#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <new>
#include <set>
#include <tuple>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "base/log.h"
#include "base/try.h"
#include "base/units.h"
#include "device/backends.h"
#include "device/host.h"
#include "device/kernels/gemm.h"
#include "device/kernels/micro.h"
#include "device/kernels/onednn.h"
#include "device/kernels/pool.h"
#include "device/numa.h"
#include "device/pci.h"

namespace danqing {
namespace {

constexpr int kMaxThreads = 512;  // GGML_MAX_N_THREADS: ggml's CPU backend aborts beyond

struct Known {
  DeviceInfo info;
  ggml_backend_dev_t handle = nullptr;
  enum ggml_backend_dev_type type = GGML_BACKEND_DEVICE_TYPE_CPU;
};

std::vector<Known> known_devices() {
  (void)backends();
  std::vector<Known> all;
  for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
    ggml_backend_dev_t dev = ggml_backend_dev_get(i);
    const auto type = ggml_backend_dev_type(dev);
    const bool cpu = type == GGML_BACKEND_DEVICE_TYPE_CPU;
    if (!cpu && type != GGML_BACKEND_DEVICE_TYPE_GPU && type != GGML_BACKEND_DEVICE_TYPE_IGPU) continue;
    Known k{{}, dev, type};
    k.info.backend = backend_name(ggml_backend_dev_backend_reg(dev));
    if (cpu) {
      const host::Memory m = host::memory();
      k.info.name = "cpu";
      k.info.description = host::cpu_name();
      k.info.memory_total = m.total;
      k.info.memory_free = m.available;
    } else {
      size_t free = 0, total = 0;
      ggml_backend_dev_memory(dev, &free, &total);
      for (char c : k.info.backend) k.info.name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      k.info.name += std::to_string(std::count_if(all.begin(), all.end(), [&](const Known& o) {
        return o.type != GGML_BACKEND_DEVICE_TYPE_CPU && o.info.backend == k.info.backend;
      }));
      k.info.description = ggml_backend_dev_description(dev);
      k.info.memory_total = total;
      k.info.memory_free = free;
    }
    all.push_back(std::move(k));
  }
  return all;
}

/// A card of its own before one that shares the host's memory, then HIP, CUDA, Vulkan (which may all show the same
/// card), more memory before less; the CPU last.
void sort_by_preference(std::vector<Known>& all) {
  const auto rank = [](const Known& k) {
    const int kind = k.type == GGML_BACKEND_DEVICE_TYPE_GPU ? 2 : k.type == GGML_BACKEND_DEVICE_TYPE_IGPU ? 1 : 0;
    return std::tuple(kind, -backend_rank(k.info.backend), k.info.memory_total);
  };
  std::stable_sort(all.begin(), all.end(), [&](const Known& a, const Known& b) { return rank(a) > rank(b); });
}

/// Backends of this build that offer no card although the machine has one for them are worth a line.
void say_what_is_missing() {
  for (const BackendStatus& s : backends())
    if (!s.reason.empty()) log::write(s.expected ? log::Level::warning : log::Level::info, skipped_text(s));
}

template <class F>
F procedure(ggml_backend_t backend, const char* name) {
  ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(ggml_backend_get_device(backend));
  return reg ? reinterpret_cast<F>(ggml_backend_reg_get_proc_address(reg, name)) : nullptr;
}

/// $DANQING_THREADS if it is a sensible number, else the physical cores that this process may use.
int default_threads() {
  if (const char* text = std::getenv("DANQING_THREADS")) {
    const int n = std::atoi(text);
    if (n >= 1 && n <= kMaxThreads) return n;
  }
  return std::min(kMaxThreads, host::physical_cores(host::allowed_cpus()));
}

}  // namespace

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> infos;
  for (Known& k : known_devices()) {
    k.info.unusable = unusable(k.handle);
    infos.push_back(std::move(k.info));
  }
  return infos;
}

std::vector<std::string> devices_by_preference() {
  std::vector<Known> all = known_devices();
  sort_by_preference(all);
  std::vector<std::string> names;
  for (const Known& k : all)
    if (unusable(k.handle).empty()) names.push_back(k.info.name);
  return names;
}

std::string pci_address(std::string_view device_name) {
  for (const Known& k : known_devices()) {
    if (k.info.name != device_name || k.type == GGML_BACKEND_DEVICE_TYPE_CPU) continue;
    ggml_backend_dev_props props{};
    ggml_backend_dev_get_props(k.handle, &props);
    return props.device_id ? props.device_id : "";
  }
  return "";
}

std::string ggml_version_text() { return ggml_version(); }
std::string cpu_features() { return host::cpu_features(); }

Result<std::shared_ptr<Device>> Device::open(std::string_view name, const DeviceOptions& options) {
  const CpuOptions& cpu = options;
  if (cpu.threads < 0 || cpu.threads > kMaxThreads)
    return usage_error("[device] expected 0 to {} threads, got {}", kMaxThreads, cpu.threads);
  if (!kernels::allowed_instruction_set())
    return usage_error("[device] expected avx2, avx2-vnni, avx512 or avx512-vnni in $DANQING_CPU_ISA, got \"{}\"",
                       std::getenv("DANQING_CPU_ISA"));
  (void)kernels::micro_kernels();  // the instruction set must be known before the first kernel runs
  std::vector<Known> all = known_devices();
  const bool any = name == "auto";
  if (any) {
    sort_by_preference(all);
    say_what_is_missing();
  }
  std::string list = "auto";
  for (const Known& k : all) {
    list += ", " + k.info.name;
    if (!any && k.info.name != name) continue;
    if (const std::string why = unusable(k.handle); !why.empty()) {
      Error e = fail(ErrorCode::device_lost, "[device] {} ({}): {}", k.info.name, k.info.description, why);
      if (!any) return e;
      log::write(log::Level::warning, e.message + "; trying the next device");
      continue;
    }
    std::shared_ptr<Device> d(new Device());
    d->info_ = k.info;
    d->is_cpu_ = k.type == GGML_BACKEND_DEVICE_TYPE_CPU;
    d->backend_ = ggml_backend_dev_init(k.handle, nullptr);
    if (!d->backend_) {
      Error e = fail(ErrorCode::device_lost, "[device] expected {} ({}) to start, got an error from its driver",
                     k.info.name, k.info.description);
      if (!any) return e;
      log::write(log::Level::warning, e.message + "; trying the next device");
      continue;
    }
    std::vector<std::vector<int>> nodes;
    if (d->is_cpu_ && cpu.numa != Numa::off) {
      nodes = host::numa_nodes(host::allowed_cpus());
      DQ_CHECK(host::apply_numa(cpu.numa, nodes));
    }
    d->threads_ = cpu.threads ? cpu.threads : default_threads();
    const bool own = d->is_cpu_ && cpu.kernels == CpuKernels::danqing && kernels::computes(kernels::Format::f32);
    if (auto set = procedure<ggml_backend_set_n_threads_t>(d->backend_, "ggml_backend_set_n_threads");
        set && d->is_cpu_)
      set(d->backend_, own ? 1 : d->threads_);
    if (own)
      d->pool_ = std::make_unique<kernels::Pool>(
          d->threads_, cpu.numa == Numa::distribute && nodes.size() > 1 ? nodes : std::vector<std::vector<int>>{});
    d->cpu_precision_ = cpu.precision;
    return d;
  }
  return usage_error("[device] expected one of {}, got \"{}\"", list, name);
}

Device::Device() = default;

Device::~Device() {
  if (backend_) ggml_backend_free(backend_);
}

std::string Device::kernels_text() const {
  if (!pool_) return "ggml";
  const char* precision = "f32";
  if (cpu_precision_ == CpuPrecision::i8 && kernels::computes(kernels::Format::i8)) precision = "i8";
  if (cpu_precision_ == CpuPrecision::i16 && kernels::computes(kernels::Format::i16)) precision = "i16";
  if (cpu_precision_ == CpuPrecision::bf16 && kernels::onednn_available()) precision = "bf16";
  const bool no_i8 = cpu_precision_ == CpuPrecision::i8 && !kernels::computes(kernels::Format::i8);
  if (cpu_precision_ == CpuPrecision::automatic || no_i8) {
    if (kernels::onednn_prefers_bf16())
      precision = "bf16";
    else if (kernels::preferred_format() == kernels::Format::i16)
      precision = "i16";
  }
  return std::string("danqing ") + kernels::micro_kernels()->name + ", " + precision;
}

uint64_t Device::memory_free() const {
  if (is_cpu_) return host::memory().available;
  size_t free = 0, total = 0;
  ggml_backend_dev_memory(ggml_backend_get_device(backend_), &free, &total);
  return free;
}

ggml_backend_buffer_type_t Device::buffer_type() const { return ggml_backend_get_default_buffer_type(backend_); }

std::optional<uint64_t> Device::limit() const {
  return limit_ == std::numeric_limits<uint64_t>::max() ? std::nullopt : std::optional(limit_);
}

size_t Device::largest_buffer() const {
  return std::min(largest_buffer_, ggml_backend_buft_get_max_size(buffer_type()));
}

Result<void> Device::admit(uint64_t bytes, std::string_view what) {
  const bool fails_now = fail_in_ > 0 && --fail_in_ == 0;
  if (fails_now || bytes > limit_ - std::min<uint64_t>(limit_, allocated_)) {
    return fail(ErrorCode::does_not_fit, "[memory] expected {} free on {} for the {}, got {} in use of {} allowed",
                format_bytes(bytes), info_.name, what, format_bytes(allocated_),
                limit_ == std::numeric_limits<uint64_t>::max() ? "all" : format_bytes(limit_));
  }
  return {};
}

void Device::count(uint64_t bytes) {
  allocated_ += bytes;
  peak_ = std::max(peak_, allocated_);
}

/// The kernel would promise more than there is and end the process later. Pages of a mapped file are no such promise.
Result<void> Device::check_host_memory(uint64_t bytes, std::string_view what) const {
  if (!is_cpu_) return {};
  const uint64_t available = host::memory().available;
  if (available != 0 && bytes > available)
    return fail(ErrorCode::does_not_fit, "[memory] expected {} free on {} for the {}, got {}", format_bytes(bytes),
                info_.name, what, format_bytes(available));
  return {};
}

Result<Device::Charge> Device::charge(uint64_t bytes, std::string_view what) {
  if (bytes == 0) return Charge();
  DQ_CHECK(admit(bytes, what));
  count(bytes);
  return Charge(this, bytes);
}

void Device::Charge::shrink(uint64_t bytes) {
  if (!device_ || bytes >= bytes_) return;
  device_->allocated_ -= bytes_ - bytes;
  bytes_ = bytes;
}

Device::Charge& Device::Charge::operator=(Charge&& other) noexcept {
  if (this == &other) return *this;
  shrink(0);
  device_ = std::exchange(other.device_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

/// Pages of 2 MiB: packed strips and activations go past thousands of small ones otherwise (8 % of a product's time).
/// Only a hint; memory that is never touched still costs nothing.
static void use_large_pages(void* base, size_t bytes) {
#if defined(__linux__)
  constexpr uintptr_t kPage = uintptr_t{2} << 20;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(base) + kPage - 1) / kPage * kPage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(base) + bytes) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)base, (void)bytes;
#endif
}

/// `piece`: the largest part that cannot be split.
static Error refused(const Device& d, size_t bytes, size_t piece, std::string_view what) {
  if (piece > d.largest_buffer())
    return fail(ErrorCode::does_not_fit,
                "[memory] expected {} in one piece on {} for the {}, got a device whose largest buffer is {}",
                format_bytes(piece), d.info().name, what, format_bytes(d.largest_buffer()));
  return fail(ErrorCode::does_not_fit,
              "[memory] expected {} free on {} for the {}, got a refusal from its driver ({} in use)",
              format_bytes(bytes), d.info().name, what, format_bytes(d.allocated()));
}

Result<Device::Buffer> Device::allocate(size_t bytes, std::string_view what) {
  DQ_CHECK(admit(bytes, what));
  DQ_CHECK(check_host_memory(bytes, what));
  ggml_backend_buffer_t b = nullptr;
  try {
    if (bytes <= largest_buffer_) b = ggml_backend_buft_alloc_buffer(buffer_type(), bytes);
  } catch (const std::exception&) {  // a backend's own C++ or driver exception
  }
  if (!b) return refused(*this, bytes, bytes, what);
  if (is_cpu_) use_large_pages(ggml_backend_buffer_get_base(b), ggml_backend_buffer_get_size(b));
  count(ggml_backend_buffer_get_size(b));
  return Buffer(b, BufferDeleter{this});
}

void Device::BufferDeleter::operator()(ggml_backend_buffer_t b) const {
  device->allocated_ -= ggml_backend_buffer_get_size(b);
  ggml_backend_buffer_free(b);
}

size_t Device::measure_graph(ggml_cgraph* graph) const {
  ggml_gallocr_t g = ggml_gallocr_new(buffer_type());
  size_t bytes = 0;
  ggml_gallocr_reserve_n_size(g, graph, nullptr, nullptr, &bytes);
  ggml_gallocr_free(g);
  return bytes;
}

Result<Device::GraphBuffer> Device::allocate_graph(ggml_cgraph* graph, std::string_view what) {
  const size_t bytes = measure_graph(graph);
  DQ_CHECK(admit(bytes, what));
  DQ_CHECK(check_host_memory(bytes, what));
  GraphBuffer g(ggml_gallocr_new(buffer_type()), GraphBufferDeleter{this, 0});
  bool placed = false;
  try {
    placed = ggml_gallocr_reserve(g.get(), graph) && ggml_gallocr_alloc_graph(g.get(), graph);
  } catch (const std::exception&) {
  }
  if (!placed) {
    size_t piece = 0;
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i)
      piece = std::max(piece, ggml_backend_buft_get_alloc_size(buffer_type(), ggml_graph_node(graph, i)));
    return refused(*this, bytes, piece, what);
  }
  g.get_deleter().bytes = ggml_gallocr_get_buffer_size(g.get(), 0);
  count(g.get_deleter().bytes);
  if (is_cpu_) {
    std::set<ggml_backend_buffer_t> parts;
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
      const ggml_tensor* node = ggml_graph_node(graph, i);
      if (!node->view_src && node->buffer) parts.insert(node->buffer);
    }
    for (ggml_backend_buffer_t part : parts)
      use_large_pages(ggml_backend_buffer_get_base(part), ggml_backend_buffer_get_size(part));
  }
  return g;
}

size_t Device::work_bytes(ggml_cgraph* graph) const {
#ifdef GGML_USE_CPU
  if (is_cpu_) return ggml_graph_plan(graph, pool_ ? 1 : threads_, nullptr).work_size;
#endif
  (void)graph;
  return 0;
}

void Device::GraphBufferDeleter::operator()(ggml_gallocr* g) const {
  device->allocated_ -= bytes;
  ggml_gallocr_free(g);
}

void Device::set_abort_callback(ggml_abort_callback callback, void* data) const {
  if (auto set = procedure<ggml_backend_set_abort_callback_t>(backend_, "ggml_backend_set_abort_callback"))
    set(backend_, callback, data);
}

}  // namespace danqing
