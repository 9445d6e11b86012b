// Scales beside weights: what ComfyUI, ModelOpt and transformers write, and what is wrong with damaged ones.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/float_bits.h"
#include "checkpoint/make_files.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using namespace testing;

std::string f32s(const std::vector<float>& values) {
  std::string out;
  for (float v : values) out += le(v);
  return out;
}

Result<std::shared_ptr<const TensorSource>> open(const TempDir& dir, const Safetensors& file) {
  return TensorSource::open(put(dir.path(), "x.safetensors", file.bytes()));
}

TEST(Scales, AsComfyKitchenDecodesThem) {
  DQ_ASSERT_OK(const auto source, TensorSource::open(data("low_precision/comfy.safetensors")));
  DQ_ASSERT_OK(const auto expected, TensorSource::open(data("low_precision/expected.safetensors")));
  EXPECT_EQ(source->tensors().size(), 4u);  // the scales and markers belong to them
  for (const char* name : {"nvfp4", "mxfp8", "fp8", "int8"}) {
    DQ_ASSERT_OK(const Tensor got, read_f32(*source, std::string(name) + ".weight"));
    DQ_ASSERT_OK(const Tensor want, read_f32(*expected, name));
    const int64_t rows = want.size(0), columns = want.size(1), step = got.size(0) / rows;
    ASSERT_EQ(got.size(1), columns) << name;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)  // the same products in the same order: bit for bit
        ASSERT_EQ(got.data[static_cast<size_t>(r * (step > 1 ? 5 : 1) * columns + c)],
                  want.data[static_cast<size_t>(r * columns + c)])
            << name << " [" << r << ", " << c << "]";
  }
  const TensorInfo* t = source->find("nvfp4.weight");
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->dtype, DType::f4_e2m1_hi);
  EXPECT_EQ(t->shape, (Shape{272, 80}));
  ASSERT_TRUE(t->scale && t->scale->global);
  EXPECT_EQ(t->scale->layout, TensorScale::Layout::tiles);
  EXPECT_EQ(source->bytes(t->scale->values).size(), 384u * 8u);  // a kernel finds the bytes
}

TEST(Scales, RoundingToFp8AsTorchDoes) {
  DQ_ASSERT_OK(const auto expected, TensorSource::open(data("low_precision/expected.safetensors")));
  struct Type {
    const char* name;
    uint8_t (*narrow)(float);
  };
  for (const auto& [name, narrow] : {Type{"f8_e4m3", f32_to_f8_e4m3}, Type{"f8_e5m2", f32_to_f8_e5m2}}) {
    DQ_ASSERT_OK(const Tensor in, read_f32(*expected, fmt::format("round.{}.in", name)));
    DQ_ASSERT_OK(const auto want, read_integers(*expected, fmt::format("round.{}.out", name)));
    for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(narrow(in.data[i]), want[i]) << name << " " << in.data[i];
  }
}

// ModelOpt's layout has no marker: the first value of a pair in the low half, scales row by row.
TEST(Scales, Nvfp4AsModelOptWritesIt) {
  Safetensors f;
  std::string pairs, scales;
  for (int i = 0; i < 2 * 16; ++i) pairs += '\x42';           // 1, 2
  for (const char s : {0x38, 0x40, 0x30, 0x48}) scales += s;  // 1, 2, 0.5, 4
  f.add("a.weight", "U8", "[2,16]", pairs);
  f.add("a.weight_scale", "F8_E4M3", "[2,2]", scales);
  f.add("a.weight_scale_2", "F32", "[]", f32s({0.25f}));
  f.add("a.input_scale", "F32", "[]", f32s({9}));
  const TempDir dir;
  DQ_ASSERT_OK(const auto source, open(dir, f));
  ASSERT_EQ(source->tensors().size(), 1u);
  DQ_ASSERT_OK(const Tensor w, read_f32(*source, "a.weight"));
  ASSERT_EQ(w.shape, (Shape{2, 32}));
  const float factors[] = {0.25f, 0.5f, 0.125f, 1};
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(w.data[i], (i % 2 ? 2.0f : 1.0f) * factors[i / 16]) << i;
}

TEST(Scales, OneOneARowOneABlock) {
  const TempDir dir;
  const std::string ones(2 * 3, '\x38');
  for (const char* suffix : {"weight_scale", "scale_weight", "weight_scale_inv"}) {
    Safetensors f;
    f.add(fmt::format("a.{}", suffix), "F32", "[1]", f32s({0.5f}));
    f.add("a.weight", "F8_E4M3", "[2,3]", ones);
    f.add("b.weight", "F8_E5M2", "[2,3]", std::string(6, '\x3c'));
    f.add(fmt::format("b.{}", suffix), "BF16", "[2,1]", std::string("\x00\x40\x80\x40", 4));  // 2, 4
    f.add("c.weight", "F8_E4M3", "[2,3]", ones);                                              // plain beside scaled
    f.add("scaled.weight", "F32", "[1]", f32s({7}));
    f.add("scaled.weight_scale", "F32", "[1]", f32s({8}));  // of a float: not a quantisation's
    DQ_ASSERT_OK(const auto source, open(dir, f));
    EXPECT_EQ(source->tensors().size(), 5u);
    EXPECT_EQ(read_f32(*source, "a.weight").value().data, std::vector<float>(6, 0.5f));
    EXPECT_EQ(read_f32(*source, "b.weight").value().data, (std::vector<float>{2, 2, 2, 4, 4, 4}));
    EXPECT_EQ(read_f32(*source, "c.weight").value().data, std::vector<float>(6, 1));
    EXPECT_TRUE(source->find("c.weight")->plain());
    EXPECT_EQ(read_f32(*source, "scaled.weight").value().data, std::vector<float>{7});
  }
  Safetensors f;
  f.add("a.weight", "F8_E4M3", "[130,200]", std::string(130 * 200, '\x38'));
  f.add("a.weight_scale_inv", "F32", "[2,2]", f32s({1, 2, 3, 4}));
  DQ_ASSERT_OK(const auto source, open(dir, f));
  DQ_ASSERT_OK(const Tensor w, read_f32(*source, "a.weight"));
  for (size_t i = 0; i < w.data.size(); ++i)
    ASSERT_EQ(w.data[i], static_cast<float>(1 + (i % 200) / 128 + 2 * (i / 200 / 128))) << i;
}

// The layers of the metadata may lack the prefix of the tensors.
TEST(Scales, MarkersInTheMetadata) {
  const TempDir dir;
  Safetensors f;
  f.add("model.diffusion_model.l.0.q.weight", "U8", "[16,8]", std::string(128, '\x42'));
  std::string tiles(128 * 4, '\0');
  for (size_t r = 0; r < 16; ++r) tiles[r * 16] = r < 8 ? '\x38' : '\x40';
  f.add("model.diffusion_model.l.0.q.weight_scale", "F8_E4M3", "[128,4]", tiles);
  f.add("model.diffusion_model.l.0.q.weight_scale_2", "F32", "[1]", f32s({1}));
  f.metadata(
      R"({"_quantization_metadata":"{\"format_version\":\"1.0\",\"layers\":{\"l.0.q\":{\"format\":\"nvfp4\"}}}"})");
  DQ_ASSERT_OK(const auto source, open(dir, f));
  DQ_ASSERT_OK(const Tensor w, read_f32(*source, "model.diffusion_model.l.0.q.weight"));
  for (size_t i = 0; i < w.data.size(); ++i)
    ASSERT_EQ(w.data[i], (i % 2 ? 1.0f : 2.0f) * (i / 16 < 8 ? 1.0f : 2.0f)) << i;
}

TEST(Scales, TheOldMarkerGoes) {
  const TempDir dir;
  Safetensors f;
  f.add("scaled_fp8", "F8_E4M3", "[2]", "\x01\x02");
  f.add("a.weight", "F8_E4M3", "[2,2]", "\x38\x38\x38\x38");
  f.add("a.scale_weight", "F32", "[1]", f32s({3}));
  f.add("a.scale_input", "F32", "[1]", f32s({1}));
  f.add("n.weight", "F8_E4M3", "[2]", "\x38\x38");  // a vector without scale
  DQ_ASSERT_OK(const auto source, open(dir, f));
  EXPECT_EQ(source->tensors().size(), 2u);
  EXPECT_EQ(read_f32(*source, "a.weight").value().data, std::vector<float>(4, 3));
}

struct Broken {
  const char* what;
  const char* says;
  std::function<void(Safetensors&)> make;
};

TEST(Scales, WhatIsWrongIsSaidInOneLine) {
  const auto fp8 = [](Safetensors& f) { f.add("a.weight", "F8_E4M3", "[2,3]", std::string(6, '\x38')); };
  const auto fp4 = [](Safetensors& f) { f.add("a.weight", "U8", "[16,16]", std::string(256, '\x42')); };
  const auto mark = [](Safetensors& f, std::string_view json) {
    f.add("a.comfy_quant", "U8", fmt::format("[{}]", json.size()), json);
  };
  const auto scale = [](Safetensors& f, std::string_view name, std::string_view dtype, std::string_view shape,
                        size_t bytes) { f.add(name, dtype, shape, std::string(bytes, '\x38')); };
  const std::vector<Broken> cases = {
      {"marked, no scale", "expected a scale 'a.weight_scale'",
       [&](auto& f) { fp8(f), mark(f, R"({"format":"float8_e4m3fn"})"); }},
      {"old marker, no scale", "expected a scale", [&](auto& f) { fp8(f), f.add("scaled_fp8", "F8_E4M3", "[0]", ""); }},
      {"two scales", "expected one scale",
       [&](auto& f) {
         fp8(f);
         scale(f, "a.weight_scale", "F32", "[]", 4);
         scale(f, "a.scale_weight", "F32", "[]", 4);
       }},
      {"scale of columns", "one number, one a row",
       [&](auto& f) { fp8(f), scale(f, "a.weight_scale", "F32", "[3]", 12); }},
      {"scale of nothing", "one number, one a row",
       [&](auto& f) { fp8(f), scale(f, "a.weight_scale", "F32", "[0]", 0); }},
      {"integer scale", "in floats, got i32", [&](auto& f) { fp8(f), scale(f, "a.weight_scale", "I32", "[1]", 4); }},
      {"unknown format", "got 'float6'", [&](auto& f) { fp8(f), mark(f, R"({"format":"float6"})"); }},
      {"marker without format", "got '?'", [&](auto& f) { fp8(f), mark(f, "{}"); }},
      {"marker is a number", "got '?'", [&](auto& f) { fp8(f), mark(f, "7"); }},
      {"marker is no JSON", "not valid JSON", [&](auto& f) { fp8(f), mark(f, "{\"format\""); }},
      {"marker of floats", "short JSON text", [&](auto& f) { fp8(f), f.add("a.comfy_quant", "F32", "[1]", "aaaa"); }},
      {"rotated", "rotated or smoothed",
       [&](auto& f) { fp8(f), mark(f, R"({"format":"int8_tensorwise","convrot":true})"); }},
      {"smoothed", "rotated or smoothed",
       [&](auto& f) {
         fp8(f), scale(f, "a.pre_quant_scale", "F32", "[3]", 12), scale(f, "a.weight_scale", "F32", "[]", 4);
       }},
      {"metadata is no JSON", "not valid JSON",
       [&](auto& f) { fp8(f), f.metadata(R"({"_quantization_metadata":"{"})"); }},
      {"metadata is a list", "expected an object with 'layers'",
       [&](auto& f) { fp8(f), f.metadata(R"({"_quantization_metadata":"[]"})"); }},
      {"metadata without layers", "expected an object with 'layers'",
       [&](auto& f) { fp8(f), f.metadata(R"({"_quantization_metadata":"{}"})"); }},
      {"fp4, no scales", "expected a scale 'a.weight_scale'",
       [&](auto& f) { fp4(f), mark(f, R"({"format":"nvfp4"})"); }},
      {"fp4, no second scale", "expected a scale 'a.weight_scale_2'",
       [&](auto& f) { fp4(f), scale(f, "a.weight_scale", "F8_E4M3", "[16,2]", 32); }},
      {"fp4, scales not in tiles", "expected the scale 'a.weight_scale' [128, 4], got [16, 2]",
       [&](auto& f) {
         fp4(f), mark(f, R"({"format":"nvfp4"})");
         scale(f, "a.weight_scale", "F8_E4M3", "[16,2]", 32), scale(f, "a.weight_scale_2", "F32", "[]", 4);
       }},
      {"fp4, tiles without marker", "expected the scale 'a.weight_scale' [16, 2], got [128, 4]",
       [&](auto& f) {
         fp4(f);
         scale(f, "a.weight_scale", "F8_E4M3", "[128,4]", 512), scale(f, "a.weight_scale_2", "F32", "[]", 4);
       }},
      {"fp4, two global scales", "to be one number",
       [&](auto& f) {
         fp4(f);
         scale(f, "a.weight_scale", "F8_E4M3", "[16,2]", 32), scale(f, "a.weight_scale_2", "F32", "[2]", 8);
       }},
      {"fp4, rows of half a block", "whole blocks of 16",
       [&](auto& f) {
         f.add("a.weight", "U8", "[2,4]", std::string(8, '\x42'));
         scale(f, "a.weight_scale", "F8_E4M3", "[2,1]", 2), scale(f, "a.weight_scale_2", "F32", "[]", 4);
       }},
      {"fp4 as a vector", "matrix of uint8 pairs",
       [&](auto& f) {
         f.add("a.weight", "U8", "[16]", std::string(16, '\x42'));
         scale(f, "a.weight_scale", "F8_E4M3", "[2]", 2), scale(f, "a.weight_scale_2", "F32", "[]", 4);
       }},
      {"uint8 with float scales", "NVFP4), got scales in f32",
       [&](auto& f) { fp4(f), scale(f, "a.weight_scale", "F32", "[]", 4); }},
      {"uint8 of another format", "got the format 'int4'", [&](auto& f) { fp4(f), mark(f, R"({"format":"int4"})"); }},
      {"mxfp8, float scales", "powers of two",
       [&](auto& f) {
         f.add("a.weight", "F8_E4M3", "[2,32]", std::string(64, '\x38')), mark(f, R"({"format":"mxfp8"})");
         scale(f, "a.weight_scale", "F32", "[2,1]", 8);
       }},
  };
  for (const Broken& c : cases) {
    SCOPED_TRACE(c.what);
    const TempDir dir;
    Safetensors f;
    c.make(f);
    const auto r = open(dir, f);
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.error().code, ErrorCode::bad_input);
    EXPECT_NE(r.error().message.find(c.says), std::string::npos) << r.error().message;
    EXPECT_NE(r.error().message.find("x.safetensors"), std::string::npos) << r.error().message;
    EXPECT_EQ(r.error().message.find('\n'), std::string::npos) << r.error().message;
  }
}

TEST(Scales, NotFinite) {
  const TempDir dir;
  Safetensors f;
  f.add("a.weight", "F8_E4M3", "[2,3]", std::string(6, '\x38'));
  f.add("a.weight_scale", "F32", "[2]", f32s({1, NAN}));
  DQ_ASSERT_OK(const auto source, open(dir, f));  // headers only
  const auto r = read_f32(*source, "a.weight");
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message.find("finite scales"), std::string::npos);
}

// Every cut and every changed byte of a file with scales: an error or a source, never anything else.
TEST(Scales, DamagedFilesNeverCrash) {
  std::string whole;
  {
    Safetensors f;
    f.add("a.weight", "U8", "[16,8]", std::string(128, '\x42'));
    f.add("a.weight_scale", "F8_E4M3", "[128,4]", std::string(512, '\x38'));
    f.add("a.weight_scale_2", "F32", "[1]", f32s({1}));
    const std::string mark = R"({"format":"nvfp4"})";
    f.add("a.comfy_quant", "U8", fmt::format("[{}]", mark.size()), mark);
    f.add("b.weight", "F8_E4M3", "[2,3]", std::string(6, '\x38'));
    f.add("b.weight_scale", "F32", "[2]", f32s({1, 2}));
    whole = f.bytes();
  }
  const TempDir dir;
  int opened = 0, refused = 0;
  uint32_t random = 1;
  for (int i = 0; i < 1500; ++i) {
    std::string bytes = whole;
    for (int k = 0; k <= i % 3; ++k) {
      random = random * 1664525u + 1013904223u;
      const size_t header = 8 + 700;
      bytes[(random >> 8) % std::min(header, bytes.size())] =
          static_cast<char>("0123456789,:[]{}\"abqwUF_"[random % 24]);
    }
    const auto r = TensorSource::open(put(dir.path(), "x.safetensors", bytes));
    (r.ok() ? opened : refused)++;
    if (!r.ok()) {
      ASSERT_EQ(r.error().code, ErrorCode::bad_input);
      continue;
    }
    for (const TensorInfo& t : (*r)->tensors()) (void)read_f32(**r, t.name);
  }
  EXPECT_GT(opened, 0);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace danqing
