// The true model's graph, built and measured without its weights.
#include "ernie_image/sparse_file.h"
#include "models/ernie_image/transformer.h"
#include "testing/testing.h"

namespace danqing::ernie_image {
namespace {

TEST(TrueSize, MemoryOfOneStepIsBounded) {
  const testing::TempDir dir;
  Json json{{"hidden_size", 4096}, {"num_attention_heads", 32}, {"ffn_hidden_size", 12288},     {"in_channels", 128},
            {"out_channels", 128}, {"text_in_dim", 3072},       {"rope_axes_dim", {32, 48, 48}}};
  DQ_ASSERT_OK(auto device, Device::open("cpu"));
  const auto load = [&](int64_t layers) -> Result<std::unique_ptr<Transformer>> {
    json["num_layers"] = layers;
    auto config = Config::parse(json, "config.json");
    if (!config) return std::move(config).error();
    const auto path = dir / ("model" + std::to_string(layers) + ".safetensors");
    testing::write_sparse_checkpoint(path, tensor_table(*config));
    auto source = TensorSource::open(path);
    if (!source) return std::move(source).error();
    ComponentFiles files;
    files.path = path, files.source = *source, files.config = json;
    return Transformer::load(device, files, {});
  };
  DQ_ASSERT_OK(auto two, load(2));
  DQ_ASSERT_OK(auto model, load(36));
  // 36 x (4 x 4096^2 + 3 x 4096 x 12288) values of 2 bytes are 15.7 GB of matrices.
  EXPECT_GT(model->weight_bytes(), 15.7e9);
  EXPECT_LT(model->weight_bytes(), 16.2e9);

  const int64_t text[] = {512}, guided[] = {512, 77};
  DQ_ASSERT_OK(size_t one, model->measure(1, 64, 64, text));     // 1024x1024
  DQ_ASSERT_OK(size_t pair, model->measure(2, 64, 64, guided));  // and with guidance
  DQ_ASSERT_OK(size_t shallow, two->measure(1, 64, 64, text));
  RecordProperty("compute_bytes_1024x1024", std::to_string(one));
  RecordProperty("compute_bytes_1024x1024_guided", std::to_string(pair));
  std::printf("compute buffer, 1024x1024 and 512 text tokens: %zu bytes, guided %zu bytes\n", one, pair);
  EXPECT_EQ(one, shallow) << "layers share one buffer";
  // 4608 tokens: at the widest, gate and up of the MLP (12288 each) and a few rows of 4096 in f32, 4608 x 4 bytes each.
  EXPECT_LT(one, 4608u * 4 * (3 * 12288 + 4 * 4096));
  // Twice that: the mask has a row an item, not a square.
  EXPECT_LT(pair, 2 * one + (1 << 20));
}

}  // namespace
}  // namespace danqing::ernie_image
