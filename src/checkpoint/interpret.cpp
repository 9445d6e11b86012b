#include "base/try.h"
#include "checkpoint/source_builder.h"

namespace danqing {

Result<std::shared_ptr<const TensorSource>> interpret(std::shared_ptr<const TensorSource> source) {
  std::vector<TensorInfo> tensors = source->tensors();
  if (source->format() == TensorSource::Format::gguf)
    DQ_CHECK(translate_llama_names(tensors, source->metadata(), source->path().string()));
  DQ_CHECK(fold_scales(tensors, *source));
  SourceBuilder builder(*source);
  for (TensorInfo& t : tensors) builder.add(std::move(t));
  return builder.finish();
}

}  // namespace danqing
