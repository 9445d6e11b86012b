#include "device/weights.h"

#include <ggml.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "base/float_bits.h"
#include "checkpoint/tensor_source.h"
#include "device/convert.h"
#include "device/dequantize.h"
#include "device/graph.h"
#include "device/placement.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using ::testing::HasSubstr;

/// Builds a source in memory; tensors are put at multiples of `align` plus `shift` bytes.
class Source {
 public:
  explicit Source(size_t shift = 0) : shift_(shift) {}
  void add(const std::string& name, DType dtype, const Shape& shape, const std::vector<float>& values) {
    const auto blocks = values.size() / static_cast<size_t>(traits(dtype).block_elements);
    std::vector<std::byte> bytes(blocks * static_cast<size_t>(traits(dtype).block_bytes));
    if (dtype == DType::f8_e4m3) {
      for (size_t i = 0; i < values.size(); ++i)  // the codes of 0, 0.5, 1, 2 ... are enough here
        bytes[i] = std::byte(values[i] == 0 ? 0 : values[i] == 0.5f ? 0x30 : values[i] == 1 ? 0x38 : 0x40);
    } else if (dtype == DType::f64) {
      const std::vector<double> wide(values.begin(), values.end());
      std::memcpy(bytes.data(), wide.data(), bytes.size());
    } else {
      EXPECT_TRUE(
          quantize(dtype, values, is_quantized(dtype) ? shape.back() : static_cast<int64_t>(values.size()), bytes)
              .ok());
    }
    add_bytes(name, dtype, shape, bytes);
  }
  void add_bytes(const std::string& name, DType dtype, const Shape& shape, const std::vector<std::byte>& bytes) {
    storage_.resize((storage_.size() + 63) / 64 * 64 + shift_);
    tensors_.push_back({name, dtype, shape, 0, storage_.size(), bytes.size()});
    storage_.insert(storage_.end(), bytes.begin(), bytes.end());
  }
  void expect(const std::string& name, const Shape& shape, WeightUse use) {
    specs_.push_back({name, shape, use, false});
  }
  void expect_optional(const std::string& name, const Shape& shape) {
    specs_.push_back({name, shape, WeightUse::vector, true});
  }
  BoundTensors bound() {
    BoundTensors b;
    b.source = TensorSource::from_memory(tensors_, storage_);
    for (const TensorSpec& s : specs_) b.tensors.push_back({s, b.source->find(s.name)});
    return b;
  }

 private:
  size_t shift_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::byte> storage_;
  std::vector<TensorSpec> specs_;
};

std::vector<float> ramp(size_t n) {
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = 0.25f * static_cast<float>(i % 97) - 12;  // exact in bf16 and f16
  return v;
}

std::vector<float> read(const Weights& w, const std::string& name) {
  const ggml_tensor* t = w.at(name);
  std::vector<std::byte> bytes(ggml_nbytes(t));
  ggml_backend_tensor_get(t, bytes.data(), 0, bytes.size());
  std::vector<float> out(static_cast<size_t>(ggml_nelements(t)));
  EXPECT_TRUE(dequantize(*dtype_from_ggml(t->type), bytes, out).ok());
  return out;
}

std::shared_ptr<Device> cpu(CpuKernels kernels = CpuKernels::danqing) {
  auto d = Device::open("cpu", {.threads = 2, .kernels = kernels});
  EXPECT_TRUE(d.ok());
  return *d;
}

TEST(LoadWeights, StoredDtypesAreUsedWhereTheyLie) {
  Source s;
  s.add("m32", DType::f32, {4, 8}, ramp(32));
  s.add("m16", DType::bf16, {4, 8}, ramp(32));
  s.add("q8", DType::q8_0, {2, 64}, ramp(128));
  s.add("v", DType::f32, {8}, ramp(8));
  for (const auto& [name, shape] :
       {std::pair("m32", Shape{4, 8}), std::pair("m16", Shape{4, 8}), std::pair("q8", Shape{2, 64})})
    s.expect(name, shape, WeightUse::matrix);
  s.expect("v", {8}, WeightUse::vector);
  const BoundTensors bound = s.bound();
  auto d = cpu();
  DQ_ASSERT_OK(const auto w, Weights::load(d, bound, {}));
  EXPECT_EQ(d->allocated(), w->bytes());  // counted like copies
  EXPECT_EQ(w->mapped_bytes(), w->bytes());
  EXPECT_EQ(w->bytes(), 128u + 64 + 136 + 32);
  for (const char* name : {"m32", "m16", "q8", "v"})
    EXPECT_EQ(w->at(name)->data, bound.source->bytes(*bound.source->find(name)).data()) << name;
  EXPECT_EQ(w->at("m16")->type, GGML_TYPE_BF16);
  EXPECT_EQ(w->at("q8")->type, GGML_TYPE_Q8_0);
  EXPECT_EQ(w->at("m16")->ne[0], 8);
  EXPECT_EQ(w->at("m16")->ne[1], 4);
}

TEST(LoadWeights, UnalignedOnesAreCopied) {
  Source s(1);  // every tensor at an odd address
  s.add("m32", DType::f32, {4, 8}, ramp(32));
  s.add("m16", DType::bf16, {4, 8}, ramp(32));
  s.expect("m32", {4, 8}, WeightUse::matrix);
  s.expect("m16", {4, 8}, WeightUse::matrix);
  auto d = cpu();
  DQ_ASSERT_OK(const auto w, Weights::load(d, s.bound(), {}));
  EXPECT_EQ(w->mapped_bytes(), 0u);
  EXPECT_GE(d->allocated(), w->bytes());
  EXPECT_EQ(read(*w, "m32"), ramp(32));
  EXPECT_EQ(read(*w, "m16"), ramp(32));
}

/// Safetensors promise no more than the alignment of the header: the products must be right at any element's boundary.
TEST(LoadWeights, MappedAtElementBoundariesComputeRight) {
  Source s(4);
  s.add("f32", DType::f32, {3, 64}, ramp(192));
  s.add("bf16", DType::bf16, {3, 64}, ramp(192));
  s.add("f16", DType::f16, {3, 64}, ramp(192));
  s.add("q8_0", DType::q8_0, {3, 64}, ramp(192));
  const std::vector<std::string> names{"f32", "bf16", "f16", "q8_0"};
  for (const std::string& n : names) s.expect(n, {3, 64}, WeightUse::matrix);
  const BoundTensors bound = s.bound();
  auto d = cpu();
  DQ_ASSERT_OK(const auto w, Weights::load(d, bound, {}));
  EXPECT_EQ(w->mapped_bytes(), w->bytes());
  auto g = std::make_unique<Graph>(*d, 8);
  auto* x = g->input("x", DType::f32, {64});
  for (const std::string& n : names) g->output(n, ggml_mul_mat(g->ctx(), w->at(n), x));
  Runner r(std::move(g));
  ASSERT_TRUE(r.set("x", std::vector<float>(64, 0.5f)).ok());
  ASSERT_TRUE(r.run().ok());
  for (const std::string& n : names) {
    DQ_ASSERT_OK(const Tensor y, r.read(n));
    for (size_t row = 0; row < 3; ++row) {
      double sum = 0;
      for (size_t i = 0; i < 64; ++i) sum += 0.5 * ramp(192)[row * 64 + i];
      EXPECT_NEAR(y.data[row], sum, n == "q8_0" ? 1.6 : 1e-4) << n;  // 64 halves of at most 0.05
    }
  }
}

TEST(Placement, ManyTensorsGoIntoSeveralBuffers) {
  auto d = cpu();
  ggml_context* ctx = tensor_context(10);
  std::vector<ggml_tensor*> tensors;
  for (int i = 0; i < 10; ++i) {
    DQ_ASSERT_OK(ggml_tensor * t, new_tensor(ctx, GGML_TYPE_F32, {100}, "t"));
    tensors.push_back(t);
  }
  {
    DQ_ASSERT_OK(const auto buffers, place(*d, tensors, "test", 1300));  // three of 416 bytes (400, aligned to 32) each
    EXPECT_EQ(buffers.size(), 4u);
    for (int i = 0; i < 10; ++i) {
      const std::vector<float> v(100, static_cast<float>(i));
      ggml_backend_tensor_set(tensors[static_cast<size_t>(i)], v.data(), 0, 400);
    }
    for (int i = 0; i < 10; ++i)
      EXPECT_EQ(static_cast<float*>(tensors[static_cast<size_t>(i)]->data)[99], static_cast<float>(i));
  }
  EXPECT_EQ(d->allocated(), 0u);
  ggml_free(ctx);
}

TEST(LoadWeights, UseAndPolicyDecideTheDtype) {
  Source s;
  s.add("m", DType::bf16, {4, 64}, ramp(256));
  s.add("v", DType::bf16, {64}, ramp(64));
  s.add("k", DType::bf16, {2, 3, 3, 3}, ramp(54));
  s.add("f8", DType::f8_e4m3, {2, 2}, {0, 0.5f, 1, 2});
  s.add("f64", DType::f64, {2, 2}, {0, 0.5f, 1, 2});
  s.expect("m", {4, 64}, WeightUse::matrix);
  s.expect("v", {64}, WeightUse::vector);
  s.expect("k", {2, 3, 3, 3}, WeightUse::kernel);
  s.expect("f8", {2, 2}, WeightUse::matrix);
  s.expect("f64", {2, 2}, WeightUse::matrix);
  struct Case {
    std::optional<DType> policy;
    ggml_type m, f8;
  };
  for (const Case& c :
       {Case{{}, GGML_TYPE_BF16, GGML_TYPE_BF16}, Case{DType::f32, GGML_TYPE_F32, GGML_TYPE_F32},
        Case{DType::f16, GGML_TYPE_F16, GGML_TYPE_F16}, Case{DType::q8_0, GGML_TYPE_Q8_0, GGML_TYPE_BF16},
        Case{DType::q4_k, GGML_TYPE_Q8_0, GGML_TYPE_BF16}}) {  // rows of 64 and of 2 are no blocks of 256
    // With our kernels FP8 stays (stored_matrix_test.cpp).
    DQ_ASSERT_OK(const auto w, Weights::load(cpu(CpuKernels::ggml), s.bound(), {c.policy}));
    EXPECT_EQ(w->at("m")->type, c.m);
    EXPECT_EQ(w->at("f8")->type, c.f8);
    EXPECT_EQ(w->at("f64")->type, c.f8);
    EXPECT_EQ(w->at("v")->type, GGML_TYPE_F32);
    EXPECT_EQ(w->at("k")->type, GGML_TYPE_F32);
    EXPECT_EQ(read(*w, "v"), ramp(64));
    EXPECT_EQ(read(*w, "k"), ramp(54));
    EXPECT_EQ(read(*w, "f8"), (std::vector<float>{0, 0.5f, 1, 2}));
    EXPECT_EQ(read(*w, "f64"), (std::vector<float>{0, 0.5f, 1, 2}));
    const std::vector<float> m = read(*w, "m"), expected = ramp(256);
    for (size_t i = 0; i < m.size(); ++i)
      EXPECT_NEAR(m[i], expected[i], c.m == GGML_TYPE_Q8_0 ? 0.06 : 0) << i;  // 12.25/127/2 + f16 scale
  }
}

TEST(LoadWeights, PoliciesWithoutAConversionAreUsageErrors) {
  Source s;
  s.add("m", DType::f32, {1, 256}, ramp(256));
  s.expect("m", {1, 256}, WeightUse::matrix);
  for (DType t : {DType::i64, DType::f8_e4m3, DType::f64, DType::iq2_xxs, DType::boolean}) {
    const auto w = Weights::load(cpu(), s.bound(), {t});
    ASSERT_FALSE(w.ok()) << name(t);
    EXPECT_EQ(w.error().code, ErrorCode::usage);
  }
}

TEST(LoadWeights, ShapesAreTheSpecs) {
  Source s;
  s.add("conv", DType::bf16, {6, 4, 1, 1}, ramp(24));  // stored as a kernel, wanted as a matrix
  s.add("kernel", DType::f32, {6, 4}, ramp(24));       // and the reverse
  s.add("quantised", DType::q8_0, {2, 32}, ramp(64));  // a kernel out of a GGUF file
  s.add("scalar", DType::f32, {}, {3});
  s.add("cube", DType::f32, {2, 3, 4}, ramp(24));
  s.expect("conv", {6, 4}, WeightUse::matrix);
  s.expect("kernel", {6, 4, 1, 1}, WeightUse::kernel);
  s.expect("quantised", {2, 32, 1, 1}, WeightUse::kernel);
  s.expect("scalar", {}, WeightUse::vector);
  s.expect("cube", {2, 3, 4}, WeightUse::matrix);
  s.expect_optional("absent", {5});
  DQ_ASSERT_OK(const auto w, Weights::load(cpu(), s.bound(), {}));
  const auto ne = [&](const char* name) {
    const ggml_tensor* t = w->at(name);
    return std::vector<int64_t>(t->ne, t->ne + 4);
  };
  EXPECT_EQ(ne("conv"), (std::vector<int64_t>{4, 6, 1, 1}));
  EXPECT_EQ(ne("kernel"), (std::vector<int64_t>{1, 1, 4, 6}));
  EXPECT_EQ(ne("quantised"), (std::vector<int64_t>{1, 1, 32, 2}));
  EXPECT_EQ(ne("scalar"), (std::vector<int64_t>{1, 1, 1, 1}));
  EXPECT_EQ(ne("cube"), (std::vector<int64_t>{4, 3, 2, 1}));
  EXPECT_EQ(w->find("absent"), nullptr);
  EXPECT_EQ(read(*w, "scalar"), (std::vector<float>{3}));
  EXPECT_EQ(read(*w, "conv"), ramp(24));
}

TEST(LoadWeights, NonsenseShapesAreErrors) {
  Source s;
  s.add("v", DType::f32, {4}, ramp(4));
  s.expect("v", {5}, WeightUse::vector);  // a spec that bind() would have refused
  EXPECT_FALSE(Weights::load(cpu(), s.bound(), {}).ok());
  Source five;
  five.add("v", DType::f32, {1, 1, 1, 1, 4}, ramp(4));
  five.expect("v", {1, 1, 1, 1, 4}, WeightUse::vector);
  EXPECT_FALSE(Weights::load(cpu(), five.bound(), {}).ok());
  Source none;
  none.add("v", DType::f32, {0, 4}, {});
  none.expect("v", {0, 4}, WeightUse::matrix);
  EXPECT_FALSE(Weights::load(cpu(), none.bound(), {}).ok());
}

TEST(LoadWeights, ManyPiecesAndProgress) {
  const size_t n = (size_t{5} << 20) / 2 + 96;  // more than two pieces of a million values, the last one short
  Source s;
  s.add("big", DType::bf16, {static_cast<int64_t>(n / 32), 32}, ramp(n));
  s.add("small", DType::f32, {8}, ramp(8));
  s.expect("big", {static_cast<int64_t>(n / 32), 32}, WeightUse::matrix);
  s.expect("small", {8}, WeightUse::vector);
  const BoundTensors bound = s.bound();
  for (DType t : {DType::f32, DType::q8_0}) {
    std::vector<uint64_t> done;
    DQ_ASSERT_OK(const auto w, Weights::load(cpu(), bound, {t}, [&](uint64_t d, uint64_t total) {
                   EXPECT_EQ(total, n * 2 + 32);
                   done.push_back(d);
                   return true;
                 }));
    EXPECT_GE(done.size(), 4u);
    EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
    EXPECT_EQ(done.back(), n * 2 + 32);
    const std::vector<float> got = read(*w, "big"), expected = ramp(n);
    for (size_t i = 0; i < n; ++i) ASSERT_NEAR(got[i], expected[i], t == DType::f32 ? 0 : 0.06) << i;
  }
}

TEST(LoadWeights, CancelledAtAnyPoint) {
  const size_t n = size_t{5} << 20;
  Source s;
  s.add("big", DType::bf16, {static_cast<int64_t>(n / 32), 32}, ramp(n));
  s.expect("big", {static_cast<int64_t>(n / 32), 32}, WeightUse::matrix);
  const BoundTensors bound = s.bound();
  for (int after : {0, 1, 3}) {
    auto d = cpu();
    int calls = 0;
    const auto w = Weights::load(d, bound, {DType::f32}, [&](uint64_t, uint64_t) { return calls++ < after; });
    ASSERT_FALSE(w.ok());
    EXPECT_EQ(w.error().code, ErrorCode::cancelled);
    EXPECT_EQ(calls, after + 1);
    EXPECT_EQ(d->allocated(), 0u);
  }
}

TEST(LoadWeights, TooLittleMemoryIsAnError) {
  Source s;
  s.add("m", DType::bf16, {100, 100}, ramp(10000));
  s.expect("m", {100, 100}, WeightUse::matrix);
  auto d = cpu();
  d->set_limit(39999);
  const auto w = Weights::load(d, s.bound(), {DType::f32});
  ASSERT_FALSE(w.ok());
  EXPECT_EQ(w.error().code, ErrorCode::does_not_fit);
  EXPECT_THAT(w.error().message, HasSubstr("weights"));
  EXPECT_EQ(d->allocated(), 0u);
}

TEST(ParallelFor, VisitsEachOnce) {
  for (int threads : {1, 2, 5}) {
    std::vector<std::atomic<int>> visits(103);
    parallel_for(threads, 103, [&](int64_t i) { ++visits[static_cast<size_t>(i)]; });
    for (const auto& v : visits) EXPECT_EQ(v, 1);
  }
}

}  // namespace
}  // namespace danqing
