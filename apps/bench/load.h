// How fast a denoiser's file becomes usable, against copying as many bytes in memory.
#pragma once
#include "bench/stages.h"

namespace danqing::app {

/// Three rows: opening and loading the transformer from its file; the same and then reading every stored byte once, as
/// the first pass does (on the CPU kept weights lie where the file is mapped); a memcpy of as many bytes on one thread.
/// The file comes from the page cache once it has been read, which a first, untimed round sees to.
Result<void> bench_load(const std::shared_ptr<Device>& device, const ComponentProvider& components, int repetitions,
                        const std::function<void(Measurement)>& on_row);

}  // namespace danqing::app
