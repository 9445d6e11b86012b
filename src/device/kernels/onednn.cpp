#include "device/kernels/onednn.h"

#if defined(DANQING_HAVE_ONEDNN)
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl_debug.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace danqing::kernels {
namespace {

using dnnl::memory;
using Type = memory::data_type;
using Desc = memory::desc;

// ---- what differs between the versions ----
dnnl::matmul::primitive_desc matmul_for(const Desc& a, const Desc& b, const Desc& c, const dnnl::primitive_attr& attr,
                                        const dnnl::engine& engine) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, c, attr};
#else
  return {dnnl::matmul::desc(a, b, c), attr, engine};
#endif
}
// ---- end ----

const dnnl::engine& cpu() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

/// While it lives, oneDNN uses `threads` threads when called from this thread. It asks the OpenMP library that the
/// process has loaded, whichever that is; looking it up by name asks the same one.
class Threads {
 public:
  explicit Threads(int threads) {
    if (!set() || !get()) return;
    before_ = get()();
    set()(threads);
  }
  ~Threads() {
    if (before_ > 0) set()(before_);
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  static void (*set())(int) {
    static const auto f = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    return f;
  }
  static int (*get())() {
    static const auto f = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
    return f;
  }
  int before_ = 0;
};

/// "avx512_core_bf16"
std::string isa() {
  const std::string name = dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa());
  const std::string prefix = "cpu_isa_";
  return name.compare(0, prefix.size(), prefix) == 0 ? name.substr(prefix.size()) : name;
}

bool processor_has_amx_bf16() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & (1u << 22));
#else
  return false;
#endif
}

constexpr int64_t kRows = 512, kColumns = 256;  ///< of a slice, at most
constexpr int64_t kRoundedRows = 32;            ///< of A that a task rounds

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

class OnednnProduct final : public Bf16Product {
 public:
  OnednnProduct(int64_t m, int64_t n, int64_t k, size_t w_row_bytes)
      : m_(m), n_(n), k_(k), w_row_bytes_(w_row_bytes), row_step_(ceil_div(ceil_div(m, ceil_div(m, kRows)), 16) * 16) {
    const Threads one(1);
    for (const int64_t rows : {std::min(row_step_, m), m % row_step_})
      for (const int64_t columns : {std::min(kColumns, n), n % kColumns})
        if (rows > 0 && columns > 0) slices_.push_back(make_slice(rows, columns));
    for (const int64_t rows : {std::min(kRoundedRows, m), m % kRoundedRows})
      if (rows > 0) roundings_.push_back(make_rounding(rows));
  }
  bool fast() const { return fast_; }

  size_t scratch(int threads) const override {
    return aligned(static_cast<size_t>(m_ * k_) * 2) + static_cast<size_t>(threads) * pad_bytes_;
  }

  void run(Pool& pool, const float* a, const std::byte* w, float* c, std::byte* scratch,
           const Finish& finish) const override {
    std::byte* rounded = scratch;
    std::byte* pads = scratch + aligned(static_cast<size_t>(m_ * k_) * 2);
    pool.run(ceil_div(m_, kRoundedRows), [&](int64_t task, int worker) {
      const int64_t first = task * kRoundedRows;
      round(a + first * k_, rounded + first * k_ * 2, std::min(kRoundedRows, m_ - first),
            pads + static_cast<size_t>(worker) * pad_bytes_);
    });
    const int64_t row_tasks = ceil_div(m_, row_step_);
    pool.run(row_tasks * ceil_div(n_, kColumns), [&](int64_t task, int worker) {
      const int64_t i = task % row_tasks * row_step_, j = task / row_tasks * kColumns;
      const int64_t rows = std::min(row_step_, m_ - i), columns = std::min(kColumns, n_ - j);
      float* out = c + i * n_ + j;
      if (!multiply(rounded + i * k_ * 2, w + static_cast<size_t>(j) * w_row_bytes_, out, rows, columns,
                    pads + static_cast<size_t>(worker) * pad_bytes_))
        for (int64_t r = 0; r < rows; ++r) std::fill_n(out + r * n_, columns, std::numeric_limits<float>::quiet_NaN());
      if (finish)
        for (int64_t r = 0; r < rows; ++r) finish(i + r, j, columns, out + r * n_);
    });
  }

 private:
  struct Slice {
    int64_t rows, columns;
    Desc a, w, c, pad;
    dnnl::primitive primitive;
  };
  struct Rounding {
    int64_t rows;
    Desc from, to, pad;
    dnnl::primitive primitive;
  };

  static dnnl::primitive_attr with_our_memory() {
    dnnl::primitive_attr attr;  // scratch memory of ours: counted, and one primitive may run in several threads
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return attr;
  }
  void need(const Desc& pad) { pad_bytes_ = std::max(pad_bytes_, aligned(pad.get_size())); }

  Slice make_slice(int64_t rows, int64_t columns) {
    Slice s{rows, columns, {}, {}, {}, {}, {}};
    s.a = Desc({rows, k_}, Type::bf16, memory::dims{k_, 1});
    s.w = Desc({k_, columns}, Type::bf16, memory::dims{1, static_cast<int64_t>(w_row_bytes_ / 2)});
    s.c = Desc({rows, columns}, Type::f32, memory::dims{n_, 1});
    const auto pd = matmul_for(s.a, s.w, s.c, with_our_memory(), cpu());
    fast_ = fast_ && std::strstr(pd.impl_info_str(), "ref") == nullptr;
    s.pad = pd.scratchpad_desc();
    need(s.pad);
    s.primitive = dnnl::matmul(pd);
    return s;
  }

  Rounding make_rounding(int64_t rows) {
    Rounding r{rows,
               Desc({rows, k_}, Type::f32, memory::dims{k_, 1}),
               Desc({rows, k_}, Type::bf16, memory::dims{k_, 1}),
               {},
               {}};
    const dnnl::reorder::primitive_desc pd(cpu(), r.from, cpu(), r.to, with_our_memory());
    r.pad = pd.scratchpad_desc();
    need(r.pad);
    r.primitive = dnnl::reorder(pd);
    return r;
  }

  /// Values that could not be rounded would be used as they lie in the scratch memory: they become NaN too.
  void round(const float* from, std::byte* to, int64_t rows, std::byte* pad) const {
    try {
      const Threads one(1);
      const auto& r =
          *std::find_if(roundings_.begin(), roundings_.end(), [&](const auto& x) { return x.rows == rows; });
      dnnl::stream stream(cpu());
      r.primitive.execute(stream, {{DNNL_ARG_FROM, memory(r.from, cpu(), const_cast<float*>(from))},
                                   {DNNL_ARG_TO, memory(r.to, cpu(), to)},
                                   {DNNL_ARG_SCRATCHPAD, memory(r.pad, cpu(), pad)}});
      stream.wait();
    } catch (const std::exception&) {
      std::memset(to, 0xff, static_cast<size_t>(rows * k_) * 2);
    }
  }

  bool multiply(std::byte* a, const std::byte* w, float* c, int64_t rows, int64_t columns, std::byte* pad) const {
    try {
      const Threads one(1);
      const auto& s = *std::find_if(slices_.begin(), slices_.end(),
                                    [&](const auto& x) { return x.rows == rows && x.columns == columns; });
      dnnl::stream stream(cpu());
      s.primitive.execute(stream, {{DNNL_ARG_SRC, memory(s.a, cpu(), a)},
                                   {DNNL_ARG_WEIGHTS, memory(s.w, cpu(), const_cast<std::byte*>(w))},
                                   {DNNL_ARG_DST, memory(s.c, cpu(), c)},
                                   {DNNL_ARG_SCRATCHPAD, memory(s.pad, cpu(), pad)}});
      stream.wait();
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  int64_t m_, n_, k_;
  size_t w_row_bytes_;
  int64_t row_step_;
  std::vector<Slice> slices_;
  std::vector<Rounding> roundings_;
  size_t pad_bytes_ = 0;
  bool fast_ = true;
};

}  // namespace

bool onednn_available() {
  static const bool usable = [] {
    const auto runtime = static_cast<unsigned>(dnnl_version()->cpu_runtime);
    return runtime == DNNL_RUNTIME_OMP || runtime == DNNL_RUNTIME_SEQ;
  }();
  return usable;
}

std::string onednn_text() {
  if (!onednn_available()) return "absent";
  const dnnl_version_t& v = *dnnl_version();
  return std::to_string(v.major) + "." + std::to_string(v.minor) + "." + std::to_string(v.patch) + " (" + isa() + ")";
}

bool onednn_prefers_bf16() {
  static const bool prefers = onednn_available() && processor_has_amx_bf16() && isa().find("amx") != std::string::npos;
  return prefers;
}

std::shared_ptr<const Bf16Product> Bf16Product::create(int64_t m, int64_t n, int64_t k, size_t w_row_bytes) {
  if (!onednn_available() || m <= 0 || n <= 0 || k <= 0 || w_row_bytes % 2 != 0) return nullptr;
  try {
    auto product = std::make_shared<const OnednnProduct>(m, n, k, w_row_bytes);
    return product->fast() ? product : nullptr;
  } catch (const std::exception&) {  // dnnl::error: this processor has no bf16 product
    return nullptr;
  }
}

double onednn_seconds(OnednnType type, int64_t m, int64_t n, int64_t k, int threads, int repetitions) {
  if (!onednn_available()) return 0;
  try {
    const Threads scope(threads);
    const Type a_type = type == OnednnType::f32 ? Type::f32 : type == OnednnType::bf16 ? Type::bf16 : Type::u8;
    const Type b_type = type == OnednnType::u8s8 ? Type::s8 : a_type;
    const Type c_type = type == OnednnType::u8s8 ? Type::s32 : Type::f32;
    const auto pd = matmul_for({{m, k}, a_type, memory::format_tag::ab}, {{k, n}, b_type, memory::format_tag::any},
                               {{m, n}, c_type, memory::format_tag::ab}, {}, cpu());
    const memory a(pd.src_desc(), cpu()), b(pd.weights_desc(), cpu()), c(pd.dst_desc(), cpu());
    for (const memory& x : {a, b, c}) std::memset(x.get_data_handle(), 0, x.get_desc().get_size());
    const dnnl::matmul matmul(pd);
    dnnl::stream stream(cpu());
    double best = std::numeric_limits<double>::max();
    for (int i = 0; i <= repetitions; ++i) {  // the first one warms up
      const auto begin = std::chrono::steady_clock::now();
      matmul.execute(stream, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
      stream.wait();
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (i > 0) best = std::min(best, seconds);
    }
    return best;
  } catch (const std::exception&) {
    return 0;
  }
}

}  // namespace danqing::kernels
#else
namespace danqing::kernels {
bool onednn_available() { return false; }
std::string onednn_text() { return "absent"; }
bool onednn_prefers_bf16() { return false; }
std::shared_ptr<const Bf16Product> Bf16Product::create(int64_t, int64_t, int64_t, size_t) { return nullptr; }
double onednn_seconds(OnednnType, int64_t, int64_t, int64_t, int, int) { return 0; }
}  // namespace danqing::kernels
#endif
