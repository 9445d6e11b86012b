// Attention in both ways of computing it against sums in double precision.
#include <cmath>

#include "nn/detail.h"
#include "nn_testing.h"

namespace danqing {
namespace {

using nn_testing::Bench;
using nn_testing::random;
using testing::close;

struct Case {
  int64_t batch, queries, keys, heads, kv_heads, head_dim;
  bool causal;
};

/// q [B, Tq, Hq, D], k and v [B, Tk, Hkv, D], mask [B, 1, Tq, Tk] -> [B, Tq, Hq*D]
Tensor reference(const Case& c, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, double scale) {
  Tensor out({c.batch, c.queries, c.heads * c.head_dim});
  const auto at = [](const Tensor& t, int64_t b, int64_t i, int64_t h, int64_t d) {
    return static_cast<double>(t.data[static_cast<size_t>(((b * t.shape[1] + i) * t.shape[2] + h) * t.shape[3] + d)]);
  };
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t i = 0; i < c.queries; ++i)
      for (int64_t h = 0; h < c.heads; ++h) {
        const int64_t hk = h / (c.heads / c.kv_heads);
        std::vector<double> p(static_cast<size_t>(c.keys));
        double sum = 0;
        for (int64_t j = 0; j < c.keys; ++j) {
          double s = 0;
          for (int64_t d = 0; d < c.head_dim; ++d) s += at(q, b, i, h, d) * at(k, b, j, hk, d);
          sum += p[static_cast<size_t>(j)] =
              std::exp(s * scale + mask.data[static_cast<size_t>((b * c.queries + i) * c.keys + j)]);
        }
        for (int64_t d = 0; d < c.head_dim; ++d) {
          double y = 0;
          for (int64_t j = 0; j < c.keys; ++j) y += p[static_cast<size_t>(j)] / sum * at(v, b, j, hk, d);
          out.data[static_cast<size_t>(((b * c.queries + i) * c.heads + h) * c.head_dim + d)] = static_cast<float>(y);
        }
      }
  return out;
}

class Attention : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case& c = GetParam();
    q = random({c.batch, c.queries, c.heads, c.head_dim}, 1);
    k = random({c.batch, c.keys, c.kv_heads, c.head_dim}, 2);
    v = random({c.batch, c.keys, c.kv_heads, c.head_dim}, 3);
    mask = Tensor({c.batch, 1, c.queries, c.keys});
    for (int64_t n = 0; n < mask.count(); ++n) {  // the second item's last five keys are padding
      const int64_t j = n % c.keys, i = n / c.keys % c.queries, b = n / c.keys / c.queries;
      if ((c.causal && j > i + c.keys - c.queries) || (b == 1 && j >= c.keys - 5))
        mask.data[static_cast<size_t>(n)] = -INFINITY;
    }
    scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
    expected = reference(c, q, k, v, mask, scale);
  }
  Tensor q, k, v, mask, expected;
  float scale = 1;
};

// "one" takes the road of decoding, "many" the CPU's fused kernel, 512 is the VAE's head.
INSTANTIATE_TEST_SUITE_P(Shapes, Attention,
                         ::testing::Values(Case{1, 1, 600, 4, 2, 64, false}, Case{2, 7, 33, 6, 2, 128, true},
                                           Case{2, 130, 130, 4, 2, 64, true}, Case{1, 64, 97, 2, 2, 128, false},
                                           Case{1, 200, 200, 1, 1, 512, false}, Case{1, 70, 70, 2, 1, 24, true}));

// Random values at unit scale: 5e-6 is the fixture page's tolerance for attention in f32.
TEST_P(Attention, EqualsTheSum) {
  Bench b;
  auto* y = nn::attention(b.graph(), b.input("q", q), b.input("k", k), b.input("v", v), b.input("mask", mask), scale);
  EXPECT_TRUE(close(b.run(y, expected.shape), expected, 5e-6));
}

TEST_P(Attention, InPiecesOfOneAndThreeQueries) {
  const Case& c = GetParam();
  for (int64_t rows : {1, 3}) {
    Bench b;
    Graph& g = b.graph();
    const auto heads_first = [&](const char* name, const Tensor& t) {
      return ggml_permute(g.ctx(), b.input(name, t), 0, 2, 1, 3);
    };
    auto *gq = heads_first("q", q), *gk = heads_first("k", k), *gv = heads_first("v", v);
    auto* y =
        nn::attention_written_out(g, gq, gk, gv, b.input("mask", mask), scale, rows * 4 * c.keys * c.heads * c.batch);
    EXPECT_TRUE(close(b.run(y, expected.shape), expected, 5e-6)) << rows;
  }
}

TEST_P(Attention, DoesNotDependOnTheThreads) {
  std::vector<float> first;
  for (int threads : {1, 2, 3}) {
    Bench b(threads);
    auto* y = nn::attention(b.graph(), b.input("q", q), b.input("k", k), b.input("v", v), b.input("mask", mask), scale);
    const Tensor got = b.run(y, expected.shape);
    if (first.empty()) first = got.data;
    EXPECT_EQ(got.data, first) << threads << " threads";
  }
}

TEST(AttentionMemory, ScoresStayBounded) {
  // 16384 tokens of 32 heads of 128: all scores at once would be 32 GiB. The four tensors are 256 MiB each; the
  // tiled kernel needs a few packed blocks besides, the written out one a transposed copy, its pieces and twice the result while they are
  // joined.
  const int64_t tokens = 16384;
  for (bool fused : {true, false}) {
    auto device = Device::open("cpu");
    ASSERT_TRUE(device.ok());
    auto g = std::make_unique<Graph>(**device, 64);
    auto* q = g->input("q", DType::f32, {1, tokens, 32, 128});
    auto* k = g->input("k", DType::f32, {1, tokens, 32, 128});
    auto* v = g->input("v", DType::f32, {1, tokens, 32, 128});
    const auto heads_first = [&](ggml_tensor* t) { return ggml_permute(g->ctx(), t, 0, 2, 1, 3); };
    g->output("y", fused ? nn::attention(*g, q, k, v, nullptr, 0.1f)
                         : nn::attention_written_out(*g, heads_first(q), heads_first(k), heads_first(v), nullptr, 0.1f,
                                                     nn::kScoreBytes));
    EXPECT_LT(Runner(std::move(g)).measure(), fused ? size_t{1048} << 20 : size_t{2049} << 20);
  }
}

}  // namespace
}  // namespace danqing
