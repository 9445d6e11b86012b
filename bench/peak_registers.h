// Loops of nothing but multiply-adds in registers: what the processor's units do at most, without any memory.
#pragma once
#include <cstdint>
#include <vector>

namespace danqing::peak {

struct RegisterLoop {
  const char* name;         ///< "f32", "bf16", "f16", "i8"
  const char* instruction;  ///< "vfmadd 512"
  double operations;        ///< of one iteration, a multiply-add is two
  void (*run)(int64_t iterations);
};
/// Those that this processor can run.
std::vector<RegisterLoop> register_loops();

}  // namespace danqing::peak
