// The given GGUF files, and what the format allows beside them.
#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/make_files.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using namespace testing;

TEST(Gguf, TypesAndShapesAreAsTheGoldenSays) {
  const Golden golden = testing::golden("gguf/gguf");
  DQ_ASSERT_OK(const auto original, TensorSource::open(data("fixtures/ernie-tiny/transformer")));
  for (const char* type : {"MIXED", "Q8_0", "Q4_K"}) {  // the others are too large to keep
    SCOPED_TRACE(type);
    const Json& info = golden.json["files"][type];
    DQ_ASSERT_OK(const auto source, TensorSource::open(data("fixtures/gguf") / info["file"].get<std::string>()));
    EXPECT_EQ(source->format(), TensorSource::Format::gguf);
    EXPECT_EQ(source->metadata().at("general.architecture"), "ernie_image");
    EXPECT_EQ(source->tensors().size(), info["types"].size());
    for (const auto& [name, stored] : info["types"].items()) {
      const TensorInfo* t = source->find(name);
      ASSERT_NE(t, nullptr) << name;
      const auto dtype = dtype_from_name(stored.get<std::string>());
      ASSERT_TRUE(dtype.has_value()) << stored;
      EXPECT_EQ(t->dtype, *dtype) << name;
      EXPECT_EQ(t->shape, original->find(name)->shape) << name;
      EXPECT_EQ(source->bytes(*t).size(), t->bytes);
    }
  }
}

TEST(Gguf, PlainTensorsAreTheOriginalValues) {
  DQ_ASSERT_OK(const auto original, TensorSource::open(data("fixtures/ernie-tiny/transformer")));
  DQ_ASSERT_OK(const auto source, TensorSource::open(data("fixtures/gguf/ernie-tiny-MIXED.gguf")));
  int f32 = 0, narrow = 0, quantised = 0;
  for (const TensorInfo& t : source->tensors()) {
    if (is_quantized(t.dtype)) {
      EXPECT_FALSE(read_f32(*source, t.name).ok()) << t.name;
      ++quantised;
      continue;
    }
    DQ_ASSERT_OK(Tensor want, read_f32(*original, t.name));
    DQ_ASSERT_OK(const Tensor got, read_f32(*source, t.name));
    if (t.dtype == DType::f16)
      for (float& v : want.data) v = round_f16(v);
    if (t.dtype == DType::bf16)
      for (float& v : want.data) v = round_bf16(v);
    EXPECT_EQ(got.data, want.data) << t.name;
    ++(t.dtype == DType::f32 ? f32 : narrow);
  }
  EXPECT_EQ(f32, 17);
  EXPECT_EQ(narrow, 4);
  EXPECT_EQ(quantised, 14);
}

TEST(Gguf, Version2AndMetadataOfEveryType) {
  const auto list = [](uint32_t type, uint64_t n, const std::string& values) { return le(type) + le(n) + values; };
  std::string many;
  for (int32_t i = 0; i < 20; ++i) many += le(i);
  const Gguf g{.version = 2,
               .pairs = {gguf_pair("u8", 0, le<uint8_t>(200)), gguf_pair("i8", 1, le<int8_t>(-3)),
                         gguf_pair("u16", 2, le<uint16_t>(60000)), gguf_pair("i16", 3, le<int16_t>(-300)),
                         gguf_pair("u32", 4, le<uint32_t>(4000000000u)), gguf_pair("i32", 5, le<int32_t>(-70000)),
                         gguf_pair("f32", 6, le(0.5f)), gguf_pair("bool", 7, le<uint8_t>(1)),
                         gguf_pair("text", 8, gguf_text("丹青")),
                         gguf_pair("few", 9, list(8, 2, gguf_text("a") + gguf_text("b"))),
                         gguf_pair("many", 9, list(5, 20, many)), gguf_pair("none", 9, list(4, 0, "")),
                         gguf_pair("u64", 10, le<uint64_t>(UINT64_MAX)), gguf_pair("i64", 11, le<int64_t>(INT64_MIN)),
                         gguf_pair("f64", 12, le(0.25))},
               .tensors = {gguf_tensor("w", {3, 2}, 0, 0)},
               .data = le(1.f) + le(2.f) + le(3.f) + le(4.f) + le(5.f) + le(6.f)};
  const TempDir dir;
  DQ_ASSERT_OK(const auto source, TensorSource::open(put(dir.path(), "any.name", g.bytes())));
  const std::map<std::string, std::string> want = {{"u8", "200"},
                                                   {"i8", "-3"},
                                                   {"u16", "60000"},
                                                   {"i16", "-300"},
                                                   {"u32", "4000000000"},
                                                   {"i32", "-70000"},
                                                   {"f32", "0.5"},
                                                   {"bool", "true"},
                                                   {"text", "丹青"},
                                                   {"few", "[\"a\", \"b\"]"},
                                                   {"many", "[0, 1, 2, 3, 4, 5, 6, 7, ...] (20 elements)"},
                                                   {"none", "[]"},
                                                   {"u64", "18446744073709551615"},
                                                   {"i64", "-9223372036854775808"},
                                                   {"f64", "0.25"}};
  EXPECT_EQ(source->metadata(), want);
  DQ_ASSERT_OK(const Tensor w, read_f32(*source, "w"));
  EXPECT_EQ(w.shape, (Shape{2, 3}));
  EXPECT_EQ(w.data, (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST(Gguf, AlignmentMovesTheData) {
  const Gguf g{.pairs = {gguf_pair("general.alignment", 4, le<uint32_t>(256))},
               .tensors = {gguf_tensor("a", {1}, 0, 0), gguf_tensor("b", {1}, 0, 256)},
               .data = le(1.f) + std::string(252, '\0') + le(2.f),
               .alignment = 256};
  const TempDir dir;
  DQ_ASSERT_OK(const auto source, TensorSource::open(put(dir.path(), "x.gguf", g.bytes())));
  EXPECT_EQ(source->find("a")->offset % 256, 0u);
  DQ_ASSERT_OK(const Tensor b, read_f32(*source, "b"));
  EXPECT_EQ(b.data[0], 2.f);
}

TEST(Gguf, NotedShapeReplacesTheStoredOne) {
  const Gguf g{.pairs = {gguf_pair("comfy.gguf.orig_shape.w", 9,
                                   le<uint32_t>(5) + le<uint64_t>(4) + le(2) + le(4) + le(1) + le(1))},
               .tensors = {gguf_tensor("w", {8}, 0, 0)},
               .data = std::string(32, '\0')};
  const TempDir dir;
  DQ_ASSERT_OK(const auto source, TensorSource::open(put(dir.path(), "x.gguf", g.bytes())));
  EXPECT_EQ(source->find("w")->shape, (Shape{2, 4, 1, 1}));
}

}  // namespace
}  // namespace danqing
