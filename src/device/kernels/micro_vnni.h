// Tiles with the VNNI instructions (vpdpwssd, vpdpbusd), which Highway 1.0 does not reach. x86 only.
#pragma once
#include "device/kernels/micro.h"

namespace danqing::kernels {

bool has_vnni512();   ///< AVX-512 F, BW, VL and VNNI
bool has_avx_vnni();  ///< the 256-bit form, on processors without AVX-512
/// As MicroKernels::i16 and ::i8 with mr = 12 and nr = 32. Call only if has_vnni512().
void tile_i16_vnni512(int64_t k, const int16_t* a, const float* a_scale, const int16_t* b, const float* b_scale,
                      float* c, int64_t ldc, bool accumulate);
void tile_i8_vnni512(int64_t k, const uint8_t* a, const int8_t* b, int32_t* c, int64_t ldc, bool accumulate);
/// With mr = 6 and nr = 16. Call only if has_avx_vnni().
void tile_i16_vnni256(int64_t k, const int16_t* a, const float* a_scale, const int16_t* b, const float* b_scale,
                      float* c, int64_t ldc, bool accumulate);
void tile_i8_vnni256(int64_t k, const uint8_t* a, const int8_t* b, int32_t* c, int64_t ldc, bool accumulate);

}  // namespace danqing::kernels
