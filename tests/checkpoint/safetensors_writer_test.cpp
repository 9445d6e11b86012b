#include "checkpoint/safetensors_writer.h"

#include <gtest/gtest.h>

#include "testing/testing.h"

namespace danqing {
namespace {

using namespace testing;

size_t files_in(const std::filesystem::path& dir) {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator(dir), std::filesystem::directory_iterator()));
}

TEST(SafetensorsWriter, WhatIsWrittenIsReadBack) {
  const TempDir dir;
  const std::vector<float> values = {1, -2.5f, 3};
  const std::vector<int64_t> ids = {7, -1};
  DQ_ASSERT_OK(auto writer, SafetensorsWriter::create(dir / "x.safetensors"));
  ASSERT_TRUE(writer->add("z", DType::f32, {3, 1}, std::as_bytes(std::span(values))).ok());
  ASSERT_TRUE(writer->add("a", DType::i64, {2}, std::as_bytes(std::span(ids))).ok());
  ASSERT_TRUE(writer->add("none", DType::f16, {0, 4}, {}).ok());
  ASSERT_TRUE(writer->add("名\n", DType::u8, {}, std::as_bytes(std::span("x", 1))).ok());
  writer->set_metadata("how", "by hand");
  EXPECT_FALSE(std::filesystem::exists(dir / "x.safetensors"));  // not before it is whole
  ASSERT_TRUE(writer->finish().ok());
  EXPECT_EQ(files_in(dir.path()), 1u);
  DQ_ASSERT_OK(const auto source, TensorSource::open(dir / "x.safetensors"));
  EXPECT_EQ(source->tensors().size(), 4u);
  EXPECT_EQ(source->metadata().at("how"), "by hand");
  DQ_ASSERT_OK(const Tensor z, read_f32(*source, "z"));
  EXPECT_EQ(z.shape, (Shape{3, 1}));
  EXPECT_EQ(z.data, values);
  DQ_ASSERT_OK(const auto a, read_integers(*source, "a"));
  EXPECT_EQ(a, ids);
  EXPECT_EQ(source->find("none")->shape, (Shape{0, 4}));
  EXPECT_NE(source->find("名\n"), nullptr);
}

TEST(SafetensorsWriter, RefusesWhatTheFormatCannotHold) {
  const TempDir dir;
  DQ_ASSERT_OK(auto writer, SafetensorsWriter::create(dir / "x.safetensors"));
  const std::vector<float> values = {1, 2};
  const auto bytes = std::as_bytes(std::span(values));
  EXPECT_FALSE(writer->add("w", DType::f32, {3}, bytes).ok());
  EXPECT_FALSE(writer->add("w", DType::f32, {-2}, bytes).ok());
  EXPECT_FALSE(writer->add("__metadata__", DType::f32, {2}, bytes).ok());
  EXPECT_FALSE(writer->add("w", DType::q8_0, {2}, bytes).ok());
  EXPECT_TRUE(writer->add("w", DType::f32, {2}, bytes).ok());
  EXPECT_FALSE(writer->add("w", DType::f32, {2}, bytes).ok());
  EXPECT_FALSE(SafetensorsWriter::create(dir / "no/folder/x").ok());
}

TEST(SafetensorsWriter, AbandonedLeavesNothing) {
  const TempDir dir;
  {
    DQ_ASSERT_OK(auto writer, SafetensorsWriter::create(dir / "x.safetensors"));
    EXPECT_TRUE(writer->add("w", DType::u8, {1}, std::as_bytes(std::span("x", 1))).ok());
  }
  EXPECT_EQ(files_in(dir.path()), 0u);
}

}  // namespace
}  // namespace danqing
