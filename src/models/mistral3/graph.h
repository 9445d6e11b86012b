// One decoder layer as a graph, and the inputs that all layers share. Private to this folder.
#pragma once
#include <functional>
#include <span>

#include "device/graph.h"
#include "device/weights.h"
#include "models/mistral3/config.h"

namespace danqing::mistral3 {

/// Sizes of one pass.
struct PassShape {
  int64_t batch = 1, length = 0;  ///< tokens: [batch, length]
  int64_t keys = 0;           ///< key positions that a query may look at: `length` without a cache, else the cache's
  int64_t mask_rows = 0;      ///< queries attend `mask_rows` at a time; == length with a cache
  bool query_scaled = false;  ///< some position's query scale is not 1
  bool operator==(const PassShape&) const = default;
};
/// A pass without a cache over `length` positions from 0: long sequences attend a bounded number of queries at a time.
PassShape uncached_pass(const Config& c, int64_t batch, int64_t length);
/// About how many operations `layers` layers and a head append.
size_t expected_nodes(int64_t layers);

struct PassInputs {
  PassShape shape;
  ggml_tensor* ids = nullptr;                  ///< [batch * length] i32
  ggml_tensor *cos = nullptr, *sin = nullptr;  ///< [1, length, 1, head_dim]
  ggml_tensor* query_scale = nullptr;          ///< [1, length, 1, 1], null when all are 1
  ggml_tensor* mask = nullptr;                 ///< [1, 1, mask_rows, keys] of 0 and -inf
};
PassInputs make_inputs(Graph& g, const Config& c, const PassShape& s);
/// Fills everything but the ids, for positions first .. first + length - 1.
Result<void> set_positions(Runner& r, const Config& c, const RopeTable& rope, const PassShape& s, int64_t first);
/// Error usage when an id is outside the vocabulary.
Result<void> check_ids(const Config& c, std::span<const int32_t> ids, std::string_view stage);

/// Token embeddings [batch, length, hidden].
ggml_tensor* embed(Graph& g, const Config& c, const Weights& w, const PassInputs& in);

struct KeyValues {
  ggml_tensor *k, *v;  ///< [batch, keys, num_key_value_heads, head_dim]
};
/// Takes a layer's new keys and values and returns those to attend to (a cache appends). Null: the new ones.
using KeyValueStore = std::function<KeyValues(int64_t layer, const KeyValues& now)>;
/// x [batch, length, hidden] -> the same shape: pre-norm attention and SiLU-gated MLP, each with a residual.
ggml_tensor* decoder_layer(Graph& g, const Config& c, const Weights& w, int64_t layer, ggml_tensor* x,
                           const PassInputs& in, const KeyValueStore& store = {});

}  // namespace danqing::mistral3
