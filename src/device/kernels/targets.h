// Which instruction sets Highway compiles, for every file of this folder: AVX2 and AVX-512 on x86, what the platform
// has elsewhere. Include before <hwy/foreach_target.h>. No include guard needed: only definitions that may repeat.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
#ifndef DANQING_UNROLL
#define DANQING_UNROLL _Pragma("GCC unroll 16")
#endif
