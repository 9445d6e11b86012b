// Stored tensors as values: scales, rows put back, conversion with its error, and what cannot be converted.
#include "device/stored_values.h"

#include <cmath>
#include <cstring>

#include "checkpoint/tensor_spec.h"
#include "device/convert.h"
#include "device/dequantize.h"
#include "device/weights.h"
#include "testing/testing.h"

namespace danqing {
namespace {

std::vector<std::byte> bytes_of(const std::vector<float>& v, DType t, int64_t row) {
  std::vector<std::byte> out(stored_bytes(t, static_cast<int64_t>(v.size())));
  EXPECT_TRUE(quantize(t, v, row, out).ok());
  return out;
}

std::vector<float> wave(int64_t n) {
  std::vector<float> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i) v[i] = std::sin(0.37f * static_cast<float>(i));
  return v;
}

std::vector<std::byte> converted(const StoredValues& v, DType to, ConvertOptions o = {}) {
  std::vector<std::byte> out;
  const auto r = convert(v, to, o, [&](size_t offset, std::span<const std::byte> piece) -> Result<void> {
    EXPECT_EQ(offset, out.size());
    out.insert(out.end(), piece.begin(), piece.end());
    return {};
  });
  EXPECT_TRUE(r.ok()) << (r.ok() ? "" : r.error().message);
  return out;
}

// A source of one tensor "w" and whatever scale it has.
std::shared_ptr<const TensorSource> source_of(TensorInfo w, const std::vector<std::byte>& data,
                                              const std::vector<float>& scale = {}, Shape scale_shape = {}) {
  w.name = "w";
  w.bytes = data.size();
  std::vector<std::byte> storage = data;
  std::vector<TensorInfo> all;
  if (!scale.empty()) {
    storage.resize((storage.size() + 63) / 64 * 64);
    TensorScale s{.layout = scale.size() == 1 ? TensorScale::Layout::tensor : TensorScale::Layout::rows};
    s.values = {.name = "s", .shape = std::move(scale_shape), .offset = storage.size(), .bytes = 4 * scale.size()};
    const auto* first = reinterpret_cast<const std::byte*>(scale.data());
    storage.insert(storage.end(), first, first + 4 * scale.size());
    w.scale = std::make_shared<const TensorScale>(std::move(s));
  }
  all.push_back(std::move(w));
  return TensorSource::from_memory(std::move(all), std::move(storage));
}

TEST(Nvfp4, DecodesAsGgufPyDoes) {
  DQ_ASSERT_OK(const auto golden, TensorSource::open(testing::data("low_precision/nvfp4_gguf.safetensors")));
  DQ_ASSERT_OK(const Tensor want, read_f32(*golden, "values"));
  std::vector<float> got(want.data.size());
  ASSERT_TRUE(dequantize(DType::nvfp4, golden->bytes(*golden->find("raw")), got).ok());
  EXPECT_EQ(got, want.data);
}

// llama.cpp's converter writes row 2i + j of a head where transformers have row j * head/2 + i.
TEST(StoredValues, RowsOfInterleavedHeadsAreBack) {
  constexpr int64_t rows = 16, columns = 64, head = 8;
  const std::vector<float> weights = wave(rows * columns);
  std::vector<float> stored(weights.size());
  for (int64_t h = 0; h < rows / head; ++h)
    for (int64_t i = 0; i < head / 2; ++i)
      for (int64_t j = 0; j < 2; ++j)
        std::copy_n(weights.begin() + (h * head + j * head / 2 + i) * columns, columns,
                    stored.begin() + (h * head + 2 * i + j) * columns);
  for (const DType t : {DType::f32, DType::q8_0}) {
    const auto source =
        source_of({.dtype = t, .shape = {rows, columns}, .interleaved_head = head}, bytes_of(stored, t, columns));
    DQ_ASSERT_OK(const StoredValues v, StoredValues::open(*source, source->tensors()[0]));
    EXPECT_EQ(converted(v, t), bytes_of(weights, t, columns));  // the same blocks in another order
    std::vector<float> expected(weights.size());
    ASSERT_TRUE(dequantize(t, bytes_of(weights, t, columns), expected).ok());
    const auto wide = converted(v, DType::f32, {.threads = 3});
    EXPECT_EQ(std::memcmp(wide.data(), expected.data(), wide.size()), 0);
    EXPECT_TRUE(v.as_stored().empty());
  }
}

TEST(StoredValues, ScalesAreInTheWeights) {
  const std::vector<float> codes = {1, 2, -4, 0.5, 8, -1, 2, 2};
  const auto source =
      source_of({.dtype = DType::f8_e4m3, .shape = {2, 4}}, bytes_of(codes, DType::f8_e4m3, 4), {3, 0.25f}, {2, 1});
  DQ_ASSERT_OK(auto device, Device::open("cpu", {1}));
  BoundTensors bound{.source = source};
  bound.tensors.push_back({{.name = "w", .shape = {2, 4}}, source->find("w")});
  DQ_ASSERT_OK(const auto weights, Weights::load(device, bound, {DType::f32}));
  std::vector<float> got(8);
  std::memcpy(got.data(), weights->at("w")->data, 32);
  EXPECT_EQ(got, (std::vector<float>{3, 6, -12, 1.5, 2, -0.25, 0.5, 0.5}));
  EXPECT_EQ(weights->mapped_bytes(), 0u);
}

// A block type that ggml multiplies becomes plain values for it when a scale stands beside it.
TEST(StoredValues, ScaledBlocksAreNotUsedAsTheyStand) {
  const std::vector<float> values = wave(64 * 4);
  const auto source =
      source_of({.dtype = DType::nvfp4, .shape = {4, 64}}, bytes_of(values, DType::nvfp4, 64), {2}, {1});
  DQ_ASSERT_OK(auto device, Device::open("cpu", {.threads = 1, .kernels = CpuKernels::ggml}));
  BoundTensors bound{.source = source};
  bound.tensors.push_back({{.name = "w", .shape = {4, 64}}, source->find("w")});
  DQ_ASSERT_OK(const auto weights, Weights::load(device, bound, {}));
  EXPECT_EQ(weights->at("w")->type, GGML_TYPE_BF16);
  float first = 0;
  std::vector<float> plain(values.size());
  ASSERT_TRUE(dequantize(DType::nvfp4, source->bytes(*source->find("w")), plain).ok());
  const auto bits = static_cast<uint32_t>(static_cast<const uint16_t*>(weights->at("w")->data)[1]) << 16;
  std::memcpy(&first, &bits, 4);
  EXPECT_EQ(first, 2 * plain[1]);
}

TEST(Convert, ErrorIsMeasured) {
  const std::vector<float> values = wave(512 * 8);
  const auto data = bytes_of(values, DType::f32, 512);
  const StoredValues v(DType::f32, data, 512 * 8, 512);
  Deviation none, some, scaled;
  converted(v, DType::f32, {.divisor = 2, .deviation = &none});
  EXPECT_EQ(none.rel_l2(), 0);
  const auto blocks = converted(v, DType::q4_k, {.threads = 2, .deviation = &some});
  std::vector<float> back(values.size());
  ASSERT_TRUE(dequantize(DType::q4_k, blocks, back).ok());
  double error = 0, size = 0, largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double e = static_cast<double>(back[i]) - values[i];
    error += e * e, size += static_cast<double>(values[i]) * values[i], largest = std::max(largest, std::fabs(e));
  }
  EXPECT_NEAR(some.rel_l2(), std::sqrt(error / size), 1e-12);
  EXPECT_EQ(some.largest, largest);
  // With a divisor errors stay in the units of the original.
  converted(v, DType::f8_e4m3, {.divisor = 1.0f / 448, .deviation = &scaled});
  EXPECT_LT(scaled.rel_l2(), 1.0 / 16);  // half a unit of 3 bits
  EXPECT_GT(scaled.rel_l2(), 0.005);
  DQ_ASSERT_OK(const float top, largest_value(v, 2));
  // Of equal sizes with either sign any may be found.
  EXPECT_EQ(std::fabs(top), std::fabs(*std::max_element(values.begin(), values.end(),
                                                        [](float a, float b) { return std::fabs(a) < std::fabs(b); })));
}

TEST(Convert, ManyPiecesInOrderOnAnyNumberOfThreads) {
  const int64_t row = 1024, count = row * 2600;  // two pieces and a half
  const std::vector<float> values = wave(count);
  const auto data = bytes_of(values, DType::f32, row);
  const StoredValues v(DType::f32, data, count, row);
  Deviation one, three;
  EXPECT_EQ(converted(v, DType::q8_0, {.threads = 1, .deviation = &one}),
            converted(v, DType::q8_0, {.threads = 3, .deviation = &three}));
  EXPECT_EQ(converted(v, DType::q8_0), bytes_of(values, DType::q8_0, row));
  EXPECT_EQ(one.error, three.error);  // summed in order
  EXPECT_EQ(one.largest, three.largest);
}

TEST(Convert, WhatCannotBe) {
  std::vector<float> values = wave(512);
  const auto refused = [&](DType to, int64_t row) {
    const auto data = bytes_of(values, DType::f32, 512);
    const auto r = convert(StoredValues(DType::f32, data, 512, row), to, {},
                           [](size_t, std::span<const std::byte>) -> Result<void> { return {}; });
    return !r.ok() && r.error().code == ErrorCode::bad_input;
  };
  EXPECT_TRUE(refused(DType::q4_k, 128));
  EXPECT_FALSE(refused(DType::q4_k, 256));
  values[300] = 65520;
  EXPECT_TRUE(refused(DType::f16, 512));
  EXPECT_FALSE(refused(DType::bf16, 512));
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    values[300] = bad;
    for (const DType t : {DType::q8_0, DType::q4_k, DType::iq3_s, DType::iq4_nl, DType::nvfp4})  // ggml aborts on some
      EXPECT_TRUE(refused(t, 256)) << name(t);
    EXPECT_FALSE(refused(DType::bf16, 512));
    EXPECT_FALSE(largest_value(StoredValues(DType::f32, bytes_of(values, DType::f32, 512), 512, 512), 1).ok());
  }
}

}  // namespace
}  // namespace danqing
