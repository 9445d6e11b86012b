// Stored bytes to f32: each dtype against values written down or computed another way.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "checkpoint/make_files.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using namespace testing;

std::span<const std::byte> as_bytes(const std::string& s) {
  return {reinterpret_cast<const std::byte*>(s.data()), s.size()};
}

struct Stored {
  DType dtype;
  std::string bytes;
  std::vector<float> values;
};

std::vector<Stored> stored() {
  return {
      {DType::f64, le(0.1) + le(-1e300), {0.1f, -std::numeric_limits<float>::infinity()}},
      {DType::f32, le(0.1f) + le(-2.5f), {0.1f, -2.5f}},
      {DType::f16,
       le<uint16_t>(0x3c00) + le<uint16_t>(0xc100) + le<uint16_t>(0x7bff) + le<uint16_t>(0x0001),
       {1.f, -2.5f, 65504.f, 5.9604644775390625e-08f}},
      {DType::bf16, le<uint16_t>(0x3f80) + le<uint16_t>(0xc020) + le<uint16_t>(0x4049), {1.f, -2.5f, 3.140625f}},
      {DType::f8_e4m3, "\x38\x7e\x01\xb8\x08", {1.f, 448.f, 0.001953125f, -1.f, 0.015625f}},
      {DType::f8_e5m2,
       "\x3c\x7b\x01\xbc\x7c",
       {1.f, 57344.f, 1.52587890625e-05f, -1.f, std::numeric_limits<float>::infinity()}},
      {DType::i64, le<int64_t>(-5) + le<int64_t>(int64_t{1} << 40), {-5.f, 1099511627776.f}},
      {DType::i32, le<int32_t>(INT32_MIN) + le<int32_t>(7), {-2147483648.f, 7.f}},
      {DType::i16, le<int16_t>(-300), {-300.f}},
      {DType::i8, "\x80\x7f", {-128.f, 127.f}},
      {DType::u64, le<uint64_t>(UINT64_MAX), {18446744073709551616.f}},
      {DType::u32, le<uint32_t>(UINT32_MAX), {4294967296.f}},
      {DType::u16, le<uint16_t>(65535), {65535.f}},
      {DType::u8, "\xff\x01", {255.f, 1.f}},
      {DType::boolean, std::string("\x00\x01", 2), {0.f, 1.f}},
  };
}

TEST(Decode, EveryPlainType) {
  const auto cases = stored();
  ASSERT_EQ(cases.size(), 15u);  // all that safetensors knows and we read
  for (const Stored& s : cases) {
    std::vector<float> out(s.values.size());
    const auto r = decode_f32(s.dtype, as_bytes(s.bytes), out);
    ASSERT_TRUE(r.ok()) << r.error().message;
    EXPECT_EQ(out, s.values) << name(s.dtype);
  }
}

// The same through files, so that the tags of the header are covered too.
TEST(Decode, EveryTagOfSafetensors) {
  const TempDir dir;
  for (const Stored& s : stored()) {
    const std::string header = fmt::format(R"({{"w":{{"dtype":"{}","shape":[{}],"data_offsets":[0,{}]}}}})",
                                           traits(s.dtype).safetensors, s.values.size(), s.bytes.size());
    DQ_ASSERT_OK(const auto source,
                 TensorSource::open(put(dir.path(), "x.safetensors", testing::safetensors(header, s.bytes))));
    DQ_ASSERT_OK(const Tensor w, read_f32(*source, "w"));
    EXPECT_EQ(w.data, s.values) << name(s.dtype);
  }
}

// Value of an 8-bit float from its definition (OCP FP8, 2023): sign, exponent, mantissa as powers of two in double.
double f8(int bits, int exponent_bits, int bias) {
  const int mantissa_bits = 7 - exponent_bits;
  const int e = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1), m = bits & ((1 << mantissa_bits) - 1);
  const double fraction = static_cast<double>(m) / (1 << mantissa_bits);
  const double v = e == 0 ? fraction * std::pow(2.0, 1 - bias) : (1 + fraction) * std::pow(2.0, e - bias);
  return bits & 0x80 ? -v : v;
}

TEST(Decode, AllValuesOfBothFloat8) {
  for (int b = 0; b < 256; ++b) {
    const std::string byte(1, static_cast<char>(b));
    std::vector<float> out(1);
    ASSERT_TRUE(decode_f32(DType::f8_e4m3, as_bytes(byte), out).ok());
    if ((b & 0x7f) == 0x7f)
      EXPECT_TRUE(std::isnan(out[0])) << b;
    else
      EXPECT_EQ(out[0], f8(b, 4, 7)) << b;
    ASSERT_TRUE(decode_f32(DType::f8_e5m2, as_bytes(byte), out).ok());
    if ((b & 0x7f) == 0x7c)
      EXPECT_EQ(out[0], b & 0x80 ? -INFINITY : INFINITY);
    else if ((b & 0x7c) == 0x7c)
      EXPECT_TRUE(std::isnan(out[0])) << b;
    else
      EXPECT_EQ(out[0], f8(b, 5, 15)) << b;
  }
}

TEST(Decode, SizesMustAgree) {
  std::vector<float> out(2);
  for (size_t bytes : {0, 1, 7, 9, 12})
    EXPECT_FALSE(decode_f32(DType::f32, as_bytes(std::string(bytes, 'a')), out).ok()) << bytes;
  EXPECT_FALSE(decode_f32(DType::q8_0, as_bytes(std::string(34, 'a')), out).ok());
}

TEST(Decode, Integers) {
  const std::string bytes = le<int64_t>(INT64_MIN) + le<int32_t>(-7) + le<uint8_t>(255);
  const std::vector<TensorInfo> tensors = {{"a", DType::i64, {}, 0, 0, 8},
                                           {"b", DType::i32, {1}, 0, 8, 4},
                                           {"c", DType::u8, {1}, 0, 12, 1},
                                           {"f", DType::f32, {1}, 0, 8, 4}};
  const auto span = as_bytes(bytes);
  const auto source = TensorSource::from_memory(tensors, {span.begin(), span.end()});
  DQ_ASSERT_OK(const auto a, read_integers(*source, "a"));
  EXPECT_EQ(a, std::vector<int64_t>{INT64_MIN});
  DQ_ASSERT_OK(const auto b, read_integers(*source, "b"));
  EXPECT_EQ(b, std::vector<int64_t>{-7});
  DQ_ASSERT_OK(const auto c, read_integers(*source, "c"));
  EXPECT_EQ(c, std::vector<int64_t>{255});
  EXPECT_FALSE(read_integers(*source, "f").ok());
  EXPECT_FALSE(read_integers(*source, "none").ok());
  EXPECT_FALSE(read_f32(*source, "none").ok());
}

// Header lengths need not keep the data aligned.
TEST(Decode, UnalignedData) {
  const TempDir dir;
  const std::string header = R"({"w":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}})";
  for (size_t pad = 0; pad < 8; ++pad) {
    const auto path =
        put(dir.path(), "x.safetensors", testing::safetensors(header + std::string(pad, ' '), le(1.5) + le(-2.0)));
    DQ_ASSERT_OK(const auto source, TensorSource::open(path));
    DQ_ASSERT_OK(const Tensor w, read_f32(*source, "w"));
    EXPECT_EQ(w.data, (std::vector<float>{1.5f, -2.f}));
  }
}

}  // namespace
}  // namespace danqing
