// The prompt enhancer's language model against transformers, and the cache against itself.
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "mistral3/stack_files.h"
#include "models/mistral3/model.h"
#include "sampling/token_sampler.h"

namespace danqing::mistral3 {
namespace {

using danqing::testing::close;
using danqing::testing::golden;
using ::testing::HasSubstr;

constexpr const char* kCases[] = {"en", "zh", "quotes", "system"};
constexpr int32_t kEos = 2;
// The fixtures' figure for logits in f32: different f32 orders of evaluation differ by less than 1e-5.
constexpr double kF32Tolerance = 1e-5;

std::unique_ptr<CausalLM> load(const ComponentFiles& files, const WeightPolicy& policy = kF32) {
  auto r = CausalLM::load(cpu(), files, policy);
  EXPECT_TRUE(r.ok()) << (r.ok() ? "" : r.error().message);
  return r.ok() ? std::move(r).value() : nullptr;
}

Tensor as_tensor(std::vector<float> v) {
  const Shape shape{static_cast<int64_t>(v.size())};
  return Tensor(shape, std::move(v));
}

/// Logits of `ids` appended in pieces of `piece` tokens to a fresh sequence.
Tensor logits_of(CausalLM& lm, const std::vector<int32_t>& ids, size_t piece, int64_t reserve) {
  EXPECT_TRUE(lm.reset(reserve).ok());
  std::vector<float> last;
  for (size_t i = 0; i < ids.size(); i += piece) {
    auto r = lm.append(std::span(ids).subspan(i, std::min(piece, ids.size() - i)));
    EXPECT_TRUE(r.ok()) << (r.ok() ? "" : r.error().message);
    if (!r) return {};
    last = *r;
  }
  EXPECT_EQ(lm.position(), static_cast<int64_t>(ids.size()));
  return as_tensor(std::move(last));
}

std::vector<int32_t> generate(CausalLM& lm, std::vector<int32_t> next, size_t cap, const TokenSamplerOptions& options,
                              uint64_t seed) {
  CpuGenerator generator(seed);
  EXPECT_TRUE(lm.reset(static_cast<int64_t>(next.size() + cap)).ok());
  std::vector<int32_t> out;
  while (out.size() < cap && (out.empty() || out.back() != kEos)) {
    const auto logits = lm.append(next);
    EXPECT_TRUE(logits.ok());
    if (!logits) break;
    out.push_back(choose_token(*logits, options, generator));
    next = {out.back()};
  }
  return out;
}

/// As many new tokens as the tokenizer's model_max_length allowed when the goldens were made.
size_t cap_of_goldens() {
  auto j = read_json(danqing::testing::data("fixtures/ernie-tiny/pe_tokenizer/tokenizer_config.json"));
  EXPECT_TRUE(j.ok());
  return j.ok() ? (*j)["model_max_length"].get<size_t>() : 0;
}

std::vector<int32_t> some_ids(size_t n, int32_t vocab) {
  std::vector<int32_t> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<int32_t>((i * 7919 + 5 + i / 11) % static_cast<size_t>(vocab));
  return v;
}

TEST(CausalLM, FirstLogitsEqualTransformers) {
  const auto lm = load(tiny("pe"));
  ASSERT_TRUE(lm);
  const auto g = golden("ernie-tiny/golden/pe");
  for (const std::string c : kCases) {
    const Tensor t = logits_of(*lm, g.ids(c + ".prompt_ids"), 1000, 0);
    EXPECT_TRUE(close(t, g.f32(c + ".first_logits"), kF32Tolerance)) << c;
  }
}

TEST(CausalLM, GreedyIdsEqualTransformers) {
  const auto lm = load(tiny("pe"));
  ASSERT_TRUE(lm);
  const auto g = golden("ernie-tiny/golden/pe");
  for (const std::string c : kCases)
    EXPECT_EQ(generate(*lm, g.ids(c + ".prompt_ids"), cap_of_goldens(), {.temperature = 0}, 0),
              g.ids(c + ".greedy_ids"))
        << c;
}

TEST(CausalLM, SampledIdsEqualTransformers) {
  const auto lm = load(tiny("pe"));
  ASSERT_TRUE(lm);
  const auto g = golden("ernie-tiny/golden/pe");
  const TokenSamplerOptions options{.temperature = 0.6f, .top_k = 50, .top_p = 0.95f};
  for (const std::string c : kCases)
    EXPECT_EQ(generate(*lm, g.ids(c + ".prompt_ids"), cap_of_goldens(), options, 1234),
              g.ids(c + ".sampled_ids_seed1234"))
        << c;
}

TEST(CausalLM, Bf16LogitsAreAsCloseAsTorchsBf16) {
  const auto lm = load(tiny("pe"), kBf16);  // with an f16 cache
  ASSERT_TRUE(lm);
  const auto g = golden("ernie-tiny/golden/pe");
  for (const std::string c : kCases) {
    const double torch = g.json["cases"][c]["first_logits_bf16_vs_f32"]["rel_l2"].get<double>();
    const Tensor t = logits_of(*lm, g.ids(c + ".prompt_ids"), 1000, 0);
    EXPECT_TRUE(close(t, g.f32(c + ".first_logits"), 1.5 * torch)) << c;  // the fixtures' rule for bf16
    EXPECT_TRUE(close(t, g.f32(c + ".first_logits_bf16"), 2 * torch)) << c;
  }
}

TEST(CausalLM, TokenByTokenEqualsOnePass) {
  const auto lm = load(tiny("pe"));
  ASSERT_TRUE(lm);
  const auto ids = some_ids(300, 2560);  // crosses a step of 256 keys
  const Tensor once = logits_of(*lm, ids, ids.size(), 300);
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{256}})
    EXPECT_TRUE(close(logits_of(*lm, ids, piece, 300), once, kF32Tolerance)) << piece;
}

TEST(CausalLM, GrowsBeyondWhatWasReserved) {
  const auto lm = load(tiny("pe"));
  ASSERT_TRUE(lm);
  const auto ids = some_ids(1400, 2560);  // more than two passes over a prompt
  const Tensor roomy = logits_of(*lm, ids, ids.size(), 1400);
  const uint64_t full = lm->cache_bytes();
  EXPECT_GE(full, kv_bytes(lm->config(), 1400, DType::f32));
  const auto other = load(tiny("pe"));
  ASSERT_TRUE(other);
  EXPECT_TRUE(close(logits_of(*other, ids, 200, 1), roomy, kF32Tolerance));
  ASSERT_TRUE(other->reset(0).ok());
  EXPECT_EQ(other->position(), 0);
}

TEST(CausalLM, CacheOfEarlierSequenceLeavesNoTrace) {
  const auto lm = load(tiny("pe"));
  ASSERT_TRUE(lm);
  const auto ids = some_ids(20, 2560);
  const Tensor fresh = logits_of(*lm, ids, 20, 600);
  logits_of(*lm, some_ids(600, 1000), 600, 600);
  EXPECT_EQ(logits_of(*lm, ids, 20, 600).data, fresh.data);
}

TEST(CausalLM, QueryScaleAndWindowHoldAcrossSteps) {
  for (const bool window : {false, true}) {
    ComponentFiles files = tiny("pe");
    (*files.config)["rope_parameters"]["original_max_position_embeddings"] = 16;  // scaled from position 16 on
    if (window) (*files.config)["sliding_window"] = 10;
    const auto lm = load(files);
    ASSERT_TRUE(lm);
    const auto ids = some_ids(50, 2560);
    const Tensor once = logits_of(*lm, ids, 50, 50);
    EXPECT_TRUE(close(logits_of(*lm, ids, 1, 50), once, kF32Tolerance)) << window;
    EXPECT_FALSE(close(logits_of(*load(tiny("pe")), ids, 50, 50), once, 1e-2)) << window;
  }
}

/// `source` with one more tensor: `name` [rows, columns] f32 with values k * (its own index).
std::shared_ptr<const TensorSource> with_head(const TensorSource& source, const std::string& name) {
  std::vector<TensorInfo> infos;
  std::vector<std::byte> storage;
  auto add = [&](TensorInfo t, std::span<const std::byte> bytes) {
    storage.resize((storage.size() + 31) / 32 * 32);
    t.file = 0, t.offset = storage.size(), t.bytes = bytes.size();
    storage.insert(storage.end(), bytes.begin(), bytes.end());
    infos.push_back(std::move(t));
  };
  for (const TensorInfo& t : source.tensors()) add(t, source.bytes(t));
  // Row r of the new head is row r + 1 of the embedding: logits move by one.
  const TensorInfo* table = source.find("model.embed_tokens.weight");
  const auto bytes = source.bytes(*table);
  const size_t row = bytes.size() / static_cast<size_t>(table->shape[0]);
  std::vector<std::byte> head(bytes.begin(), bytes.end());
  std::rotate(head.begin(), head.begin() + static_cast<std::ptrdiff_t>(row), head.end());
  TensorInfo info = *table;
  info.name = name;
  add(info, head);
  return TensorSource::from_memory(std::move(infos), std::move(storage));
}

TEST(CausalLM, UsesItsOwnHeadWhenNotTied) {
  const auto ids = some_ids(9, 2560);
  Tensor expected = logits_of(*load(tiny("pe")), ids, 9, 0);
  std::rotate(expected.data.begin(), expected.data.begin() + 1, expected.data.end());
  for (const char* name : {"lm_head.weight", "language_model.lm_head.weight"}) {
    ComponentFiles files = tiny("pe");
    (*files.config)["tie_word_embeddings"] = false;
    EXPECT_FALSE(CausalLM::load(cpu(), files, kF32).ok());  // no head in the file
    files.source = with_head(*files.source, name);
    const auto lm = load(files);
    ASSERT_TRUE(lm) << name;
    EXPECT_TRUE(close(logits_of(*lm, ids, 9, 0), expected, 1e-6)) << name;  // the same products
  }
}

TEST(CausalLM, StopsWhenCancelledAndGoesOnAfterwards) {
  const auto lm = load(tiny("pe"));
  ASSERT_TRUE(lm);
  const auto ids = some_ids(40, 2560);
  const Tensor expected = logits_of(*lm, ids, 20, 0);
  ASSERT_TRUE(lm->reset(0).ok());
  ASSERT_TRUE(lm->append(std::span(ids).first(20)).ok());
  const auto stopped = lm->append(std::span(ids).subspan(20), [] { return true; });
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::cancelled);
  EXPECT_EQ(lm->position(), 20);
  int polls = 0;  // within the pass, not only before it
  const auto later = lm->append(std::span(ids).subspan(20), [&] { return ++polls > 3; });
  ASSERT_FALSE(later.ok());
  EXPECT_EQ(later.error().code, ErrorCode::cancelled);
  EXPECT_EQ(lm->position(), 20);
  const auto rest = lm->append(std::span(ids).subspan(20));
  ASSERT_TRUE(rest.ok());
  EXPECT_EQ(*rest, expected.data);
}

TEST(CausalLM, RefusesBadCalls) {
  ComponentFiles files = tiny("pe");
  (*files.config)["max_position_embeddings"] = 8;
  const auto lm = load(files);
  ASSERT_TRUE(lm);
  ASSERT_TRUE(lm->reset(int64_t{1} << 60).ok());  // no more than the model can use
  EXPECT_LE(lm->cache_bytes(), kv_bytes(lm->config(), 256, DType::f32));
  EXPECT_FALSE(lm->append({}).ok());
  EXPECT_FALSE(lm->append(std::vector<int32_t>{2560}).ok());
  EXPECT_FALSE(lm->append(std::vector<int32_t>{-1}).ok());
  ASSERT_TRUE(lm->append(std::vector<int32_t>{1, 2, 3, 4, 5}).ok());
  const auto r = lm->append(std::vector<int32_t>{1, 2, 3, 4});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::usage);
  EXPECT_THAT(r.error().message, HasSubstr("at most 3 more"));
  EXPECT_EQ(lm->position(), 5);
  EXPECT_TRUE(lm->append(std::vector<int32_t>{1, 2, 3}).ok());
  ASSERT_TRUE(lm->reset(-5).ok());
  EXPECT_TRUE(lm->append(std::vector<int32_t>{1}).ok());
}

TEST(CausalLM, SaysWhenTheCacheDoesNotFit) {
  auto device = Device::open("cpu", {.threads = 1});
  ASSERT_TRUE(device.ok());
  auto lm = CausalLM::load(*device, tiny("pe"), kF32);
  ASSERT_TRUE(lm.ok());
  (*device)->set_limit((*device)->allocated() + (1 << 20));
  const auto r = (*lm)->reset(100000);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::does_not_fit);
  (*device)->set_limit(uint64_t{1} << 40);
  EXPECT_TRUE((*lm)->reset(100).ok());
  EXPECT_TRUE((*lm)->append(std::vector<int32_t>{1, 2}).ok());
}

TEST(CausalLM, MiniModelRunsInItsStoredDtype) {
  const auto lm = load(stack_files(danqing::testing::mini_model() / "pe"), {});  // stored bf16, f16 cache
  ASSERT_TRUE(lm);
  const Tensor t = logits_of(*lm, some_ids(30, 1555), 30, 60);
  EXPECT_EQ(t.shape, (Shape{1555}));
  EXPECT_TRUE(std::all_of(t.data.begin(), t.data.end(), [](float x) { return std::isfinite(x); }));
  EXPECT_TRUE(close(logits_of(*lm, some_ids(30, 1555), 1, 60), t, 1e-2));  // bf16 products round by the shape of a pass
}

}  // namespace
}  // namespace danqing::mistral3
