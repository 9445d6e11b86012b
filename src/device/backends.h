// The backends of cards. A build may hold some itself; others are modules, loaded when the program starts, so that a
// missing driver never keeps it from starting and one package serves every card.
#pragma once
#include <ggml-backend.h>

#include <filesystem>
#include <string>
#include <vector>

namespace danqing {

struct BackendStatus {
  std::string name;            ///< "HIP", "CUDA", "Vulkan"
  std::filesystem::path file;  ///< the module; empty: a part of the program
  int devices = 0;             ///< cards that it found
  std::string reason;          ///< why it offers none, for people; empty when it offers some
  bool expected = false;       ///< this machine has a card that it is made for
};

/// Once per process: ggml's messages into our log, modules found in $DANQING_BACKEND_PATH (folders, separated by ':'),
/// or in danqing/backends beside the library or the program. What cannot be loaded is described, never fatal. From any
/// thread.
const std::vector<BackendStatus>& backends();

/// "HIP (libggml-hip.so) is skipped: ..."
std::string skipped_text(const BackendStatus& s);

/// The order in which "auto" takes cards of the same kind: HIP, CUDA, Vulkan, others.
int backend_rank(const std::string& name);

/// ggml's name of a backend as people know it ("ROCm" is HIP).
std::string backend_name(ggml_backend_reg_t backend);

/// Why a backend's card must not be used although its driver offers it; empty when nothing speaks against it. HIP cards
/// without kernels of their target: the first operation would end the process.
std::string unusable(ggml_backend_dev_t card);

}  // namespace danqing
