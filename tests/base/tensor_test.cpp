#include "base/tensor.h"

#include <gtest/gtest.h>

#include "testing/testing.h"

namespace danqing {
namespace {

TEST(Shape, ElementCount) {
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({2, 3, 4}), 24);
  EXPECT_EQ(element_count({5, 0, 7}), 0);
  EXPECT_EQ(element_count({-1}), -1);
  EXPECT_EQ(element_count({INT64_MAX}), INT64_MAX);
  EXPECT_EQ(element_count({INT64_MAX, 2}), -1);
  EXPECT_EQ(element_count({int64_t{1} << 32, int64_t{1} << 32}), -1);
  EXPECT_EQ(to_string(Shape{2, 3}), "[2, 3]");
  EXPECT_EQ(to_string(Shape{}), "[]");
}

TEST(TensorOps, SliceItemStackConcat) {
  const Tensor t({3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(slice(t, 1, 2).data, (std::vector<float>{3, 4, 5, 6}));
  EXPECT_EQ(slice(t, 3, 0).shape, (Shape{0, 2}));
  EXPECT_EQ(item(t, 2).shape, Shape{2});
  EXPECT_EQ(item(t, 2).data, (std::vector<float>{5, 6}));
  DQ_ASSERT_OK(const Tensor stacked, stack({t, t}));
  EXPECT_EQ(stacked.shape, (Shape{2, 3, 2}));
  DQ_ASSERT_OK(const Tensor joined, concat({t, slice(t, 0, 1)}));
  EXPECT_EQ(joined.shape, (Shape{4, 2}));
  EXPECT_EQ(joined.data, (std::vector<float>{1, 2, 3, 4, 5, 6, 1, 2}));
}

TEST(TensorOps, WhatDoesNotFitTogether) {
  EXPECT_FALSE(concat({}).ok());
  EXPECT_FALSE(stack({}).ok());
  EXPECT_FALSE(concat({Tensor({2, 3}), Tensor({2, 4})}).ok());
  EXPECT_FALSE(concat({Tensor({2, 3}), Tensor({3})}).ok());
  EXPECT_FALSE(stack({Tensor({2}), Tensor({3})}).ok());
  EXPECT_FALSE(concat({Tensor(Shape{}), Tensor(Shape{})}).ok());  // scalars have no axis to join along
}

}  // namespace
}  // namespace danqing
