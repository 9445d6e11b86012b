// Writes the weight files of a model whose weights were drawn from torch.Generator, from the recipe of the draws:
//   random_model MODEL_DIRECTORY   reads weights.json there
// A recipe is a hundredth of the weights. {"files": [{"path", "tensors": [{"name", "shape", "seed", "std", "mean",
// "times", "fix"}]}]}: a tensor is bf16((randn * std + mean) * times); "fix" holds pairs of (distance from the last
// fixed element, bits) for values so near the middle between two bf16 numbers that the last place of this machine's
// cosine would decide.
#include <fmt/format.h>

#include <cstdio>

#include "base/json.h"
#include "base/try.h"
#include "checkpoint/safetensors_writer.h"
#include "sampling/random.h"

namespace danqing {
namespace {

Result<void> write_tensor(const JsonObject& t, SafetensorsWriter& writer) {
  DQ_TRY(const std::string name, t.string("name"));
  DQ_TRY(const Shape shape, t.integers("shape"));
  DQ_TRY(const int64_t seed, t.integer("seed"));
  DQ_TRY(const double std, t.number("std"));
  DQ_TRY(const double mean, t.number("mean", 0.0));
  DQ_TRY(const double times, t.number("times", 1.0));
  DQ_TRY(const Shape fix, t.integers("fix", Shape{}));
  std::vector<float> values(static_cast<size_t>(element_count(shape)));
  CpuGenerator(static_cast<uint64_t>(seed)).randn(values);
  std::vector<uint16_t> bits;
  for (const float v : values) {
    const float scaled = v * static_cast<float>(std) + static_cast<float>(mean);
    bits.push_back(f32_to_bf16(scaled * static_cast<float>(times)));
  }
  size_t at = 0;
  for (size_t i = 0; i + 1 < fix.size(); i += 2) {
    at += static_cast<size_t>(fix[i]);
    if (at >= bits.size()) return bad_input("[recipe] {}: fixes element {} of {}", name, at, bits.size());
    bits[at] = static_cast<uint16_t>(fix[i + 1]);
  }
  return writer.add(name, DType::bf16, shape, std::as_bytes(std::span(bits)));
}

Result<void> write_model(const std::filesystem::path& directory) {
  DQ_TRY(const Json recipe, read_json(directory / "weights.json"));
  for (const Json& file : recipe.at("files")) {
    DQ_TRY(const JsonObject f, JsonObject::of(file, "weights.json"));
    DQ_TRY(const std::string path, f.string("path"));
    DQ_TRY(const auto writer, SafetensorsWriter::create(directory / path));
    for (const Json& tensor : file.at("tensors")) {
      DQ_TRY(const JsonObject t, JsonObject::of(tensor, "weights.json"));
      DQ_CHECK(write_tensor(t, *writer));
    }
    DQ_CHECK(writer->finish());
  }
  return {};
}

}  // namespace
}  // namespace danqing

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("usage: random_model MODEL_DIRECTORY\n", stderr), 2;
  const auto done = danqing::write_model(argv[1]);
  if (!done) std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return done ? 0 : 1;
}
