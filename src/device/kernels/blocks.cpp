#include "device/kernels/blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/kernels/blocks.cpp"
#include "device/kernels/targets.h"  // before highway.h
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/cache_control.h>
// clang-format on

#if HWY_TARGET <= HWY_AVX2
#include "device/kernels/blocks_formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace danqing::kernels::HWY_NAMESPACE {

/// Takes the values of a block and stores them.
struct Expand {
  static constexpr bool kExact = true;
  float* HWY_RESTRICT out;
  template <int kSlot>
  HWY_INLINE void put(int at, Sixteen v) const {
    DANQING_UNROLL
    for (int i = 0; i < kParts; ++i) hn::StoreU(v.part[i], DF(), out + at + i * kLanes);
  }
  HWY_INLINE void put32(int at, Sixteen a, Sixteen b, V d) const {
    put<0>(at, apply<Form::product, true>(a, d, d));
    put<1>(at + 16, apply<Form::product, true>(b, d, d));
  }
};

/// Takes the values of a block and multiplies kRows rows of x with them.
template <int kRows>
struct Dot {
  static constexpr bool kExact = false;
  static constexpr int kSlots = kParts == 1 || kRows <= 2 ? 2 : 1;
  const float* HWY_RESTRICT x;
  int64_t ldx;
  V sum[kRows][kSlots][kParts];
  HWY_INLINE Dot(const float* x_, int64_t ldx_) : x(x_), ldx(ldx_) {
    DANQING_UNROLL
    for (int r = 0; r < kRows; ++r) {
      DANQING_UNROLL
      for (int s = 0; s < kSlots * kParts; ++s) sum[r][s / kParts][s % kParts] = hn::Zero(DF());
    }
  }
  template <int kSlot>
  HWY_INLINE void put(int at, Sixteen v) {
    DANQING_UNROLL
    for (int r = 0; r < kRows; ++r) {
      DANQING_UNROLL
      for (int i = 0; i < kParts; ++i) {
        V& s = sum[r][kSlot % kSlots][i];
        s = hn::MulAdd(v.part[i], hn::LoadU(DF(), x + r * ldx + at + i * kLanes), s);
      }
    }
  }
  /// One row: the scale is multiplied with the sum of two products.
  HWY_INLINE void put32(int at, Sixteen a, Sixteen b, V d) {
    if constexpr (kRows > 1) {
      put<0>(at, apply<Form::product, true>(a, d, d));
      put<1>(at + 16, apply<Form::product, true>(b, d, d));
    } else {
      DANQING_UNROLL
      for (int i = 0; i < kParts; ++i) {
        const V first = hn::Mul(a.part[i], hn::LoadU(DF(), x + at + i * kLanes));
        const V both = hn::MulAdd(b.part[i], hn::LoadU(DF(), x + at + 16 + i * kLanes), first);
        sum[0][0][i] = hn::MulAdd(both, d, sum[0][0][i]);
      }
    }
  }
  HWY_INLINE float total(int r) const {
    V all = sum[r][0][0];
    for (int s = 1; s < kSlots * kParts; ++s) all = hn::Add(all, sum[r][s / kParts][s % kParts]);
    return hn::GetLane(hn::SumOfLanes(DF(), all));
  }
};

template <class Format>
void expand(const uint8_t* blocks, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    Expand e{out + i * Format::kValues};
    Format::unpack(blocks + i * Format::kBytes, e);
  }
}

/// Bytes that weights are fetched ahead: the hardware stops at the end of each page, rows go on.
constexpr int kAhead = 4096;

template <class Format, int kRows>
void dot_rows(const uint8_t* blocks, int64_t count, const float* x, int64_t ldx, float* y) {
  Dot<kRows> sums(x, ldx);
  for (int64_t i = 0; i < count; ++i, blocks += Format::kBytes, sums.x += Format::kValues) {
    for (int line = 0; line < Format::kBytes; line += 64) hwy::Prefetch(blocks + kAhead + line);
    Format::unpack(blocks, sums);
  }
  for (int r = 0; r < kRows; ++r) y[r] = sums.total(r);
}

template <class Format>
void dot(const uint8_t* blocks, int64_t count, const float* x, int64_t ldx, int rows, float* y) {
  switch (rows) {
    case 1: return dot_rows<Format, 1>(blocks, count, x, ldx, y);
    case 2: return dot_rows<Format, 2>(blocks, count, x, ldx, y);
    case 3: return dot_rows<Format, 3>(blocks, count, x, ldx, y);
    default: return dot_rows<Format, 4>(blocks, count, x, ldx, y);
  }
}

void fill(BlockKernels* table) {
  const auto set = [table]<class Format>(DType type, Format) {
    table[static_cast<int>(type)] = {expand<Format>, dot<Format>};
  };
  set(DType::q8_0, Q8_0()), set(DType::q4_0, Q4_0()), set(DType::q4_1, Q4_1()), set(DType::q5_0, Q5_0());
  set(DType::q5_1, Q5_1()), set(DType::q2_k, Q2_K()), set(DType::q3_k, Q3_K()), set(DType::q4_k, Q4_K());
  set(DType::q5_k, Q5_K()), set(DType::q6_k, Q6_K()), set(DType::iq4_nl, Iq4Nl()), set(DType::iq4_xs, Iq4Xs());
  set(DType::mxfp4, Mxfp4()), set(DType::nvfp4, Nvfp4());
}

}  // namespace danqing::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
#include <array>

#include "device/kernels/micro.h"

namespace danqing::kernels {
namespace {

using Table = std::array<BlockKernels, kDTypeCount>;

struct Tables {
  Table avx3{}, avx2{}, none{};
  std::vector<BlockKernelTable> all;
  Tables() {
    micro_kernels();  // has made up its mind about the instruction sets that are allowed
    [[maybe_unused]] const int64_t supported = hwy::SupportedTargets();
#if HWY_TARGETS & HWY_AVX3
    if (supported & HWY_AVX3) N_AVX3::fill(avx3.data()), all.push_back({"AVX3", avx3.data()});
#endif
#if HWY_TARGETS & HWY_AVX2
    if (supported & HWY_AVX2) N_AVX2::fill(avx2.data()), all.push_back({"AVX2", avx2.data()});
#endif
  }
};

const Tables& tables() {
  static const Tables t;
  return t;
}

}  // namespace

const std::vector<BlockKernelTable>& all_block_kernels() { return tables().all; }

const BlockKernels& block_kernels(DType type) {
  static const BlockKernels* best = tables().all.empty() ? tables().none.data() : tables().all.front().kernels;
  return best[static_cast<int>(type)];
}

}  // namespace danqing::kernels
#endif
