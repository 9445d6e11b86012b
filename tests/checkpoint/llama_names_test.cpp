// Text encoders in llama.cpp's names: translated, q and k put back into the order of transformers.
#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/make_files.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using namespace testing;

Gguf model(const std::vector<std::string>& pairs, bool qk_norm = false) {
  Gguf g{.pairs = pairs};
  uint64_t offset = 0;
  const auto add = [&](const std::string& name, uint64_t columns, uint64_t rows) {
    g.tensors.push_back(
        gguf_tensor(name, rows > 1 ? std::vector<uint64_t>{columns, rows} : std::vector{columns}, 0, offset));
    for (uint64_t i = 0; i < columns * rows; ++i) g.data += le(static_cast<float>(i));
    while (g.data.size() % 32 != 0) g.data += '\0';
    offset = g.data.size();
  };
  add("token_embd.weight", 2, 5);
  for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
    add(std::string("blk.0.") + name + ".weight", 2, 8);
  for (const char* name : {"attn_norm", "ffn_norm"}) add(std::string("blk.0.") + name + ".weight", 2, 1);
  if (qk_norm)
    for (const char* name : {"attn_q_norm", "attn_k_norm"}) add(std::string("blk.0.") + name + ".weight", 2, 1);
  add("output_norm.weight", 2, 1);
  add("rope_freqs.weight", 2, 1);
  return g;
}

std::string architecture(std::string_view name) { return gguf_pair("general.architecture", 8, gguf_text(name)); }
std::string number(std::string_view key, uint32_t v) { return gguf_pair(key, 4, le(v)); }

Result<std::shared_ptr<const TensorSource>> open(const TempDir& dir, const Gguf& g) {
  return TensorSource::open(put(dir.path(), "x.gguf", g.bytes()));
}

TEST(LlamaNames, BecomeThoseOfTransformers) {
  const TempDir dir;
  for (const auto& [pairs, qk_norm, head, kind] :
       std::vector<std::tuple<std::vector<std::string>, bool, int64_t, std::string>>{
           {{architecture("mistral3"), number("mistral3.attention.key_length", 4)}, false, 4, "mistral"},
           {{architecture("llama"), number("llama.rope.dimension_count", 8)}, false, 8, "mistral"},
           {{architecture("llama"), number("llama.embedding_length", 8), number("llama.attention.head_count", 2)},
            false,
            4,
            "mistral"},
           {{number("llama.attention.key_length", 2)}, false, 2, "mistral"},
           {{architecture("qwen3"), number("qwen3.attention.key_length", 4)}, true, 0, "qwen3"},
           {{}, true, 0, "qwen3"}}) {
    DQ_ASSERT_OK(const auto source, open(dir, model(pairs, qk_norm)));
    const std::string l = "model.layers.0.";
    for (const std::string& name :
         {std::string("model.embed_tokens.weight"), l + "self_attn.v_proj.weight", l + "self_attn.o_proj.weight",
          l + "mlp.gate_proj.weight", l + "mlp.up_proj.weight", l + "mlp.down_proj.weight",
          l + "input_layernorm.weight", l + "post_attention_layernorm.weight", std::string("model.norm.weight")}) {
      const TensorInfo* t = source->find(name);
      ASSERT_NE(t, nullptr) << name;
      EXPECT_TRUE(t->plain()) << name;
    }
    EXPECT_EQ(source->find(l + "self_attn.q_norm.weight") != nullptr, qk_norm);
    for (const char* name : {"self_attn.q_proj.weight", "self_attn.k_proj.weight"}) {
      const TensorInfo* t = source->find(l + name);
      ASSERT_NE(t, nullptr) << name;
      EXPECT_EQ(t->interleaved_head, head);
    }
    const auto recognised = recognise(*source);
    ASSERT_TRUE(recognised);
    EXPECT_EQ(recognised->description.rfind(kind, 0), 0u) << recognised->description;
  }
}

TEST(LlamaNames, OtherArchitecturesKeepTheirNames) {
  const TempDir dir;
  DQ_ASSERT_OK(const auto source, open(dir, model({architecture("gemma3")})));
  EXPECT_NE(source->find("blk.0.attn_q.weight"), nullptr);
  EXPECT_EQ(recognise(*source)->description, "language model in llama.cpp's names");
}

TEST(LlamaNames, ImpossibleHeads) {
  const TempDir dir;
  for (const auto& pairs :
       std::vector<std::vector<std::string>>{{number("llama.attention.key_length", 3)},
                                             {number("llama.attention.key_length", 0)},
                                             {number("llama.attention.key_length", 6)},
                                             {gguf_pair("llama.attention.key_length", 11, le<int64_t>(INT64_MIN))},
                                             {gguf_pair("llama.attention.key_length", 11, le<int64_t>(-2))},
                                             {}}) {  // 128 rows a head, the file has 8
    const auto r = open(dir, model(pairs));
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.error().code, ErrorCode::bad_input);
    EXPECT_NE(r.error().message.find("expected rows in heads of"), std::string::npos) << r.error().message;
  }
}

TEST(LlamaNames, TwoNamesForOneTensor) {
  Gguf g = model({number("llama.attention.key_length", 4)});
  g.tensors.push_back(gguf_tensor("model.norm.weight", {0}, 0, 0));
  const TempDir dir;
  const auto r = open(dir, g);
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message.find("'model.norm.weight' once"), std::string::npos) << r.error().message;
}

}  // namespace
}  // namespace danqing
