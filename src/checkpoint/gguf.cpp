#include "checkpoint/source_builder.h"
#include "base/try.h"
namespace danqing {
Result<void> read_gguf(const MappedFile& map, uint32_t, SourceBuilder&) { return bad_input("[checkpoint] {}: GGUF is not read yet", map.path().string()); }
}
