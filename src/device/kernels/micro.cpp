#include "device/kernels/micro.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/kernels/micro.cpp"
#include "device/kernels/targets.h"  // before highway.h: which instruction sets are compiled
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/cache_control.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace danqing::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 24 or 12 accumulators of two vectors a row: as many as the registers hold beside two of B and one of A.
constexpr int kRows = HWY_TARGET <= HWY_AVX3 ? 12 : 6;
constexpr int kVectors = 2;
constexpr int kAhead = 256;  // floats of A fetched ahead: they come from the second-level cache

using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using D16 = hn::Repartition<int16_t, DF>;

void tile_f32(int64_t k, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, float* HWY_RESTRICT c, int64_t ldc,
              bool accumulate) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<DF> sum[kRows][kVectors];
  DANQING_UNROLL
  for (int i = 0; i < kRows; ++i) {
    sum[i][0] = hn::Zero(d);
    sum[i][1] = hn::Zero(d);
  }
  for (int64_t p = 0; p < k; ++p) {
    const auto b0 = hn::Load(d, b), b1 = hn::Load(d, b + lanes);
    hwy::Prefetch(a + kAhead);
    DANQING_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const auto ai = hn::Set(d, a[i]);
      sum[i][0] = hn::MulAdd(ai, b0, sum[i][0]);
      sum[i][1] = hn::MulAdd(ai, b1, sum[i][1]);
    }
    a += kRows;
    b += kVectors * lanes;
  }
  DANQING_UNROLL
  for (int i = 0; i < kRows; ++i) {
    float* row = c + i * ldc;
    if (accumulate) {
      sum[i][0] = hn::Add(sum[i][0], hn::LoadU(d, row));
      sum[i][1] = hn::Add(sum[i][1], hn::LoadU(d, row + lanes));
    }
    hn::StoreU(sum[i][0], d, row);
    hn::StoreU(sum[i][1], d, row + lanes);
  }
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
// Only x86's widening product adds neighbours, which the packed layout counts on.
void tile_i16(int64_t k, const int16_t* HWY_RESTRICT a, const float* HWY_RESTRICT a_scale,
              const int16_t* HWY_RESTRICT b, const float* HWY_RESTRICT b_scale, float* HWY_RESTRICT c, int64_t ldc,
              bool accumulate) {
  const DF d;
  const DI di;
  const D16 d16;
  const size_t lanes = hn::Lanes(d);
  for (int64_t block = 0; block < k; block += kBlockK) {
    hn::Vec<DI> sum[kRows][kVectors];
    DANQING_UNROLL
    for (int i = 0; i < kRows; ++i) {
      sum[i][0] = hn::Zero(di);
      sum[i][1] = hn::Zero(di);
    }
    for (int64_t p = 0; p < kBlockK; p += 2) {
      const auto b0 = hn::Load(d16, b), b1 = hn::Load(d16, b + 2 * lanes);
      DANQING_UNROLL
      for (int i = 0; i < kRows; ++i) {
        int32_t pair;
        __builtin_memcpy(&pair, a + 2 * i, 4);
        const auto ai = hn::BitCast(d16, hn::Set(di, pair));
        auto unused = hn::Zero(di);
        sum[i][0] = hn::ReorderWidenMulAccumulate(di, ai, b0, sum[i][0], unused);
        sum[i][1] = hn::ReorderWidenMulAccumulate(di, ai, b1, sum[i][1], unused);
      }
      a += 2 * kRows;
      b += 2 * kVectors * lanes;
    }
    const auto s0 = hn::Load(d, b_scale), s1 = hn::Load(d, b_scale + lanes);
    b_scale += kVectors * lanes;
    const bool add = accumulate || block > 0;
    DANQING_UNROLL
    for (int i = 0; i < kRows; ++i) {
      float* row = c + i * ldc;
      const auto si = hn::Set(d, a_scale[i]);
      const auto y0 = hn::Mul(hn::ConvertTo(d, sum[i][0]), si), y1 = hn::Mul(hn::ConvertTo(d, sum[i][1]), si);
      const auto c0 = add ? hn::LoadU(d, row) : hn::Zero(d), c1 = add ? hn::LoadU(d, row + lanes) : hn::Zero(d);
      hn::StoreU(hn::MulAdd(y0, s0, c0), d, row);
      hn::StoreU(hn::MulAdd(y1, s1, c1), d, row + lanes);
    }
    a_scale += kRows;
  }
}

#endif

MicroKernels table() {
  MicroKernels t{hwy::TargetName(HWY_TARGET), kRows, static_cast<int>(kVectors * hn::Lanes(DF())), tile_f32};
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  t.i16 = tile_i16;
#endif
  return t;
}

}  // namespace danqing::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cstdlib>
#include <string_view>
#include <vector>

#include "device/kernels/micro_vnni.h"

namespace danqing::kernels {
namespace {
HWY_EXPORT(table);

struct Tables {
  std::vector<MicroKernels> all;
  std::vector<const MicroKernels*> pointers;
  Tables() {
    const InstructionSet most = allowed_instruction_set().value_or(InstructionSet::any);
    const bool vnni = most == InstructionSet::any || most == InstructionSet::avx2_vnni;
    if (most == InstructionSet::avx2 || most == InstructionSet::avx2_vnni) hwy::DisableTargets(HWY_AVX3 | HWY_AVX3_DL);
    const int64_t supported = hwy::SupportedTargets() & HWY_TARGETS & ~(HWY_EMU128 | HWY_SCALAR);
    for (int64_t rest = supported; rest != 0; rest &= rest - 1) {  // the lowest bit is the best target
      hwy::SetSupportedTargetsForTest(rest & -rest);
      hwy::GetChosenTarget().Update(rest & -rest);
      const MicroKernels plain = HWY_DYNAMIC_DISPATCH(table)();
      if (vnni && plain.mr == 12 && plain.nr == 32 && has_vnni512()) {
        MicroKernels t = plain;
        t.name = "AVX512-VNNI", t.i16 = tile_i16_vnni512, t.i8 = tile_i8_vnni512;
        all.push_back(t);
      }
      if (vnni && plain.mr == 6 && plain.nr == 16 && has_avx_vnni()) {
        MicroKernels t = plain;
        t.name = "AVX2-VNNI", t.i16 = tile_i16_vnni256, t.i8 = tile_i8_vnni256;
        all.push_back(t);
      }
      all.push_back(plain);
    }
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
    for (const MicroKernels& t : all) pointers.push_back(&t);
  }
};

const Tables& tables() {
  static const Tables t;
  return t;
}

}  // namespace

std::optional<InstructionSet> allowed_instruction_set() {
  const char* text = std::getenv("DANQING_CPU_ISA");
  const std::string_view name = text ? text : "";
  if (name.empty() || name == "avx512-vnni") return InstructionSet::any;
  if (name == "avx512") return InstructionSet::avx512;
  if (name == "avx2-vnni") return InstructionSet::avx2_vnni;
  if (name == "avx2") return InstructionSet::avx2;
  return std::nullopt;
}

const MicroKernels* micro_kernels() { return tables().pointers.empty() ? nullptr : tables().pointers.front(); }

const MicroKernels* const* all_micro_kernels(int* count) {
  *count = static_cast<int>(tables().pointers.size());
  return tables().pointers.data();
}

}  // namespace danqing::kernels
#endif
