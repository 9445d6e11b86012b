// Linear layers whose weights stay as their file has them (FP8, scaled integers and blocks, 4-bit floats) against the
// same weights widened to f32 when they are loaded.
#include "device/stored_matrix.h"

#include <cmath>
#include <cstring>
#include <random>

#include "device/dequantize.h"
#include "device/stored_values.h"
#include "device/weights.h"
#include "nn/nn.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using Layout = TensorScale::Layout;

struct Kind {
  std::string name;
  DType stored = DType::f8_e4m3;
  bool scaled = false;
  Layout layout = Layout::tensor;
  int64_t block_rows = 1, block_columns = 1;
  DType scale = DType::f32;
  bool global = false;
  DType kept = DType::f8_e4m3;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{
      {"e4m3"},
      {"e5m2", DType::f8_e5m2, false, {}, 1, 1, {}, false, DType::f8_e5m2},
      {"e4m3, one scale", DType::f8_e4m3, true},
      {"e4m3, a scale a row", DType::f8_e4m3, true, Layout::rows},
      {"e4m3, blocks of 128", DType::f8_e4m3, true, Layout::grid, 128, 128},
      {"mxfp8", DType::f8_e4m3, true, Layout::grid, 1, 32, DType::f8_e8m0},
      {"e5m2, one scale", DType::f8_e5m2, true, Layout::tensor, 1, 1, DType::f32, false, DType::f8_e5m2},
      {"int8, a scale a row", DType::i8, true, Layout::rows, 1, 1, DType::f32, false, DType::i8},
      {"int8, one scale", DType::i8, true, Layout::tensor, 1, 1, DType::f32, false, DType::i8},
      {"nvfp4", DType::f4_e2m1, true, Layout::grid, 1, 16, DType::f8_e4m3, true, DType::nvfp4},
      {"nvfp4 in tiles", DType::f4_e2m1_hi, true, Layout::tiles, 1, 16, DType::f8_e4m3, true, DType::nvfp4},
      {"nvfp4 without factor", DType::f4_e2m1, true, Layout::grid, 1, 16, DType::f8_e4m3, false, DType::nvfp4},
      {"mxfp4", DType::f4_e2m1, true, Layout::grid, 1, 32, DType::f8_e8m0, false, DType::mxfp4},
      {"nvfp4 of gguf", DType::nvfp4, true, Layout::tensor, 1, 1, DType::f32, false, DType::nvfp4},
  };
  return all;
}

int64_t column_unit(const Kind& k) { return k.kept == DType::nvfp4 ? 64 : k.block_columns == 32 ? 32 : 1; }

size_t random_bytes(std::mt19937& gen, DType t, size_t values, std::vector<std::byte>& out) {
  const size_t at = (out.size() + 63) / 64 * 64, n = stored_bytes(t, static_cast<int64_t>(values));
  out.resize(at + n);
  for (size_t i = at; i < out.size(); ++i) {
    auto b = static_cast<uint8_t>(gen());
    if (t == DType::f8_e4m3 && (b & 0x7f) == 0x7f) b ^= 1;  // no NaN
    if (t == DType::f8_e5m2 && (b & 0x7c) == 0x7c) b ^= 4;  // nor infinity
    if (t == DType::f8_e8m0) b = static_cast<uint8_t>(120 + b % 12);
    out[i] = std::byte(b);
  }
  if (t == DType::f32)
    for (size_t i = 0; i < values; ++i) {
      const float f = 0.01f + static_cast<float>(gen() % 1000) / 3000;
      std::memcpy(out.data() + at + 4 * i, &f, 4);
    }
  return at;
}

/// A matrix "w" of random bytes with its scales, at an odd address where its dtype allows it.
BoundTensors random_matrix(const Kind& k, int64_t rows, int64_t columns, unsigned seed) {
  std::mt19937 gen(seed);
  std::vector<std::byte> storage(k.kept == DType::nvfp4 && k.stored == DType::nvfp4 ? 0 : 1);
  TensorInfo w{.name = "w", .dtype = k.stored, .shape = {rows, columns}};
  w.offset = random_bytes(gen, k.stored, static_cast<size_t>(rows * columns), storage);
  w.bytes = storage.size() - w.offset;
  if (k.scaled) {
    TensorScale s{.layout = k.layout, .block_rows = k.block_rows, .block_columns = k.block_columns};
    const int64_t down = (rows + k.block_rows - 1) / k.block_rows,
                  across = (columns + k.block_columns - 1) / k.block_columns;
    s.values.dtype = k.scale;
    s.values.shape = k.layout == Layout::tensor ? Shape{}
                     : k.layout == Layout::rows ? Shape{rows}
                     : k.layout == Layout::grid ? Shape{down, across}
                                                : Shape{(rows + 127) / 128 * 128, (across + 3) / 4 * 4};
    const auto count = static_cast<size_t>(element_count(s.values.shape));
    s.values.offset = random_bytes(gen, k.scale, count, storage);
    s.values.bytes = stored_bytes(k.scale, static_cast<int64_t>(count));
    if (k.global) {
      s.global = TensorInfo{.name = "g", .dtype = DType::f32, .shape = {}};
      s.global->offset = random_bytes(gen, DType::f32, 1, storage);
      s.global->bytes = 4;
    }
    w.scale = std::make_shared<const TensorScale>(std::move(s));
  }
  BoundTensors b{.source = TensorSource::from_memory({w}, storage)};
  b.tensors.push_back({{"w", {rows, columns}, WeightUse::matrix}, b.source->find("w")});
  return b;
}

std::vector<float> product(const BoundTensors& bound, std::optional<DType> widened, const Tensor& x, bool with_bias,
                           const DeviceOptions& options) {
  auto device = Device::open("cpu", options);
  EXPECT_TRUE(device.ok());
  const auto weights = Weights::load(*device, bound, {widened});
  EXPECT_TRUE(weights.ok()) << (weights.ok() ? "" : weights.error().message);
  ggml_tensor* w = (*weights)->at("w");
  auto graph = std::make_unique<Graph>(**device, 16);
  Tensor bias({w->ne[1]});
  for (size_t i = 0; i < bias.data.size(); ++i) bias.data[i] = static_cast<float>(i % 7) - 3;
  ggml_tensor* b = with_bias ? graph->input("b", DType::f32, bias.shape) : nullptr;
  ggml_tensor* y = nn::linear(*graph, graph->input("x", DType::f32, x.shape), w, b);
  graph->output("y", y, {x.shape[0], w->ne[1]});
  Runner runner(std::move(graph));
  EXPECT_TRUE(runner.set("x", x.data).ok());
  if (b) {
    EXPECT_TRUE(runner.set("b", bias.data).ok());
  }
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(runner.run().ok());
  auto out = runner.read("y");
  EXPECT_TRUE(out.ok());
  return out.ok() ? out->data : std::vector<float>();
}

Tensor activations(int64_t rows, int64_t columns, unsigned seed) {
  std::mt19937 gen(seed);
  std::normal_distribution<float> normal(0, 1);
  Tensor t({rows, columns});
  for (float& v : t.data) v = normal(gen);
  return t;
}

// Factors are multiplied in after the sum instead of before: f32 sums of other roundings. With integers the weights'
// own rounding differs too where factors are no powers of two (2^-13 of a block's largest), and i8 rounds both sides.
TEST(StoredMatrix, ProductsAreThoseOfWidenedWeights) {
  std::mt19937 gen(3);
  for (const Kind& k : kinds())
    for (const int64_t rows : {1, 2, 5, 8, 9, 30, 130}) {
      const int64_t unit = column_unit(k), out = 1 + static_cast<int64_t>(gen() % 150);
      const int64_t in = unit * (1 + static_cast<int64_t>(gen()) % (400 / unit));
      const BoundTensors w = random_matrix(k, out, in, static_cast<unsigned>(gen()));
      const Tensor x = activations(rows, in, static_cast<unsigned>(gen()));
      const std::string what = k.name + " " + to_string({rows, out, in});
      for (const auto& [precision, tolerance] :
           {std::pair(CpuPrecision::f32, 1e-6), {CpuPrecision::i16, 1e-3}, {CpuPrecision::i8, 3e-2}}) {
        const DeviceOptions one{.threads = 1, .precision = precision};
        const std::vector<float> wide = product(w, DType::f32, x, true, {.threads = 1, .precision = CpuPrecision::f32});
        const std::vector<float> direct = product(w, {}, x, true, one);
        EXPECT_TRUE(testing::close(Tensor({rows, out}, direct), Tensor({rows, out}, wide), tolerance)) << what;
        EXPECT_EQ(product(w, {}, x, true, {.threads = 3, .precision = precision}), direct) << what;
      }
    }
}

TEST(StoredMatrix, NoneIsWidened) {
  for (const Kind& k : kinds()) {
    const BoundTensors w = random_matrix(k, 70, 192, 5);
    DQ_ASSERT_OK(auto device, Device::open("cpu", {.threads = 2}));
    DQ_ASSERT_OK(const auto weights, Weights::load(device, w, {}));
    const StoredMatrix* m = stored_matrix(weights->at("w"));
    ASSERT_NE(m, nullptr) << k.name;
    EXPECT_EQ(m->type, k.kept) << k.name;
    EXPECT_EQ(ggml_nbytes(weights->at("w")), stored_bytes(k.kept, 70 * 192)) << k.name;
    EXPECT_EQ(weights->mapped_bytes() > 0, k.kept == k.stored) << k.name;
    EXPECT_EQ(device->allocated(), weights->sizes().total) << k.name;  // the factors are counted
    DQ_ASSERT_OK(auto plain, Device::open("cpu", {.threads = 1, .kernels = CpuKernels::ggml}));
    DQ_ASSERT_OK(const auto wide, Weights::load(plain, w, {}));
    EXPECT_EQ(stored_matrix(wide->at("w")), nullptr) << k.name;
    EXPECT_EQ(wide->at("w")->type, GGML_TYPE_BF16) << k.name;
  }
}

TEST(StoredMatrix, FourBitFloatsBecomeBlocksOfTheSameValues) {
  for (const Kind& k : kinds()) {
    if (k.kept == k.stored) continue;
    Kind without = k;
    without.global = false;  // its factor stays outside
    const BoundTensors w = random_matrix(without, 150, 320, 7);
    DQ_ASSERT_OK(auto device, Device::open("cpu", {.threads = 2}));
    DQ_ASSERT_OK(const auto weights, Weights::load(device, w, {}));
    const ggml_tensor* t = weights->at("w");
    std::vector<float> blocks(150 * 320);
    ASSERT_TRUE(dequantize(k.kept, {static_cast<const std::byte*>(t->data), ggml_nbytes(t)}, blocks).ok());
    DQ_ASSERT_OK(const Tensor values, read_f32(*w.source, "w"));
    EXPECT_EQ(blocks, values.data) << k.name;
  }
}

TEST(StoredMatrix, ScalesThatAreNoNumbersAreRefused) {
  for (const Kind& k : kinds()) {
    if (!k.scaled) continue;
    BoundTensors w = random_matrix(k, 20, 128, 9);
    const TensorInfo& values = w.source->find("w")->scale->values;
    auto* at = const_cast<std::byte*>(w.source->bytes(values).data());
    if (k.scale == DType::f32)
      std::memset(at, 0xff, 4);
    else
      *at = std::byte(k.scale == DType::f8_e4m3 ? 0x7f : 0xff);
    DQ_ASSERT_OK(auto device, Device::open("cpu", {.threads = 1}));
    const auto r = Weights::load(device, w, {});
    ASSERT_FALSE(r.ok()) << k.name;
    EXPECT_EQ(r.error().code, ErrorCode::bad_input) << k.name;
  }
}

TEST(StoredMatrix, TablesAndOddUsesAreWidened) {
  BoundTensors w = random_matrix(kinds()[2], 8, 32, 1);
  DQ_ASSERT_OK(auto device, Device::open("cpu", {.threads = 1}));
  w.tensors[0].spec.use = WeightUse::table;  // ggml reads rows of it
  DQ_ASSERT_OK(const auto table, Weights::load(device, w, {}));
  EXPECT_EQ(table->at("w")->type, GGML_TYPE_BF16);
  w.tensors[0].spec = {"w", {8, 32, 1, 1}, WeightUse::matrix};
  DQ_ASSERT_OK(const auto kernel, Weights::load(device, w, {}));
  EXPECT_EQ(kernel->at("w")->type, GGML_TYPE_BF16);
}

// W8A8: the scales of a matrix' rows are found once, whichever graph asks.
TEST(StoredMatrix, RowScalesAreFoundOnce) {
  Kind k;
  k.scaled = true;
  const BoundTensors w = random_matrix(k, 40, 64, 2);
  DQ_ASSERT_OK(auto device, Device::open("cpu", {.threads = 1, .precision = CpuPrecision::i8}));
  DQ_ASSERT_OK(const auto weights, Weights::load(device, w, {}));
  const StoredMatrix* m = stored_matrix(weights->at("w"));
  ASSERT_NE(m, nullptr);
  int asked = 0;
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(m->row_scales([&] {
                 ++asked;
                 return std::vector<float>{1, 2};
               }).size(),
              2u);
  EXPECT_EQ(asked, 1);
}

}  // namespace
}  // namespace danqing
