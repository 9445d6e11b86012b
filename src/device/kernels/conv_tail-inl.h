// The n < lanes values at the end of a row as a vector, without touching what lies behind. Included once for each
// instruction set.
#include <algorithm>
#include <cstdint>

#if defined(DANQING_KERNELS_CONV_TAIL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DANQING_KERNELS_CONV_TAIL_INL_H_
#undef DANQING_KERNELS_CONV_TAIL_INL_H_
#else
#define DANQING_KERNELS_CONV_TAIL_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace danqing::kernels::HWY_NAMESPACE {

template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V load_tail(D d, const float* p, int64_t n) {
  alignas(64) float padded[64] = {};
  std::copy_n(p, n, padded);
  return hwy::HWY_NAMESPACE::Load(d, padded);
}

template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE void store_tail(V v, D d, float* p, int64_t n) {
  alignas(64) float padded[64];
  hwy::HWY_NAMESPACE::Store(v, d, padded);
  std::copy_n(padded, n, p);
}

}  // namespace danqing::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
