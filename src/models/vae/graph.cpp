#include "models/vae/graph.h"

#include <fmt/format.h>

#include <cmath>

#include "nn/nn.h"

namespace danqing::vae {
namespace {

using Kind = Layer::Kind;

constexpr size_t kNodesPerLayer = 12, kNodesAround = 64;  // an estimate is enough: a graph grows

std::unique_ptr<Graph> new_graph(const Network& n, size_t layers, bool taps = false) {
  return std::make_unique<Graph>(n.device, kNodesAround + kNodesPerLayer * layers, taps);
}

/// Layers by the name of their tensors. Pictures are [1, C, height, width].
struct Builder {
  Graph& g;
  const Network& n;

  ggml_tensor* weight(const std::string& name) const { return n.weights.at(name + ".weight"); }
  ggml_tensor* bias(const std::string& name) const { return n.weights.at(name + ".bias"); }

  /// By the statistics `given`, else by its own.
  ggml_tensor* norm(ggml_tensor* x, const std::string& name, ggml_tensor* given) const {
    return given ? nn::normalise(g, x, given, weight(name), bias(name))
                 : nn::group_norm(g, x, weight(name), bias(name), n.groups, kNormEps);
  }
  ggml_tensor* conv(ggml_tensor* x, const std::string& name, const nn::Conv2dOptions& o = {}) const {
    return nn::conv2d(g, x, weight(name), bias(name), o);
  }
  ggml_tensor* linear(ggml_tensor* x, const std::string& name) const {
    return nn::linear(g, x, weight(name), bias(name));
  }

  /// The rows of pixels [1, pixels, C] of a picture.
  ggml_tensor* rows(ggml_tensor* x, int64_t channels, int64_t pixels) const {
    return nn::reshape(g, nn::permute(g, nn::reshape(g, x, {1, 1, channels, pixels}), {0, 1, 3, 2}),
                       {1, pixels, channels});
  }
  /// One head over all pixels; x is the picture, normed its rows of pixels.
  ggml_tensor* attend(ggml_tensor* x, ggml_tensor* normed, ggml_tensor* k, ggml_tensor* v, const Layer& l, int64_t h,
                      int64_t w) const {
    const int64_t pixels = h * w, c = l.in;
    ggml_tensor* q = nn::reshape(g, linear(normed, l.name + ".to_q"), {1, pixels, 1, c});
    ggml_tensor* y = nn::attention(g, q, k, v, nullptr, 1.0f / std::sqrt(static_cast<float>(c)));
    y = nn::reshape(g, linear(y, l.name + ".to_out.0"), {1, 1, pixels, c});
    y = nn::reshape(g, nn::permute(g, y, {0, 1, 3, 2}), {1, c, h, w});
    return nn::add(g, x, y);
  }
  ggml_tensor* attention(ggml_tensor* x, const Layer& l, int64_t h, int64_t w) const {
    ggml_tensor* normed = rows(norm(x, l.name + ".group_norm", nullptr), l.in, h * w);
    const auto head = [&](const char* part) {
      return nn::reshape(g, linear(normed, l.name + part), {1, h * w, 1, l.in});
    };
    ggml_tensor *k = head(".to_k"), *v = head(".to_v");
    return attend(x, normed, k, v, l, h, w);
  }
};

struct Pictures {
  ggml_tensor *x = nullptr, *kept = nullptr;
  Interval rows, columns, kept_rows, kept_columns;  ///< sizes; only the lengths count
};

nn::Conv2dOptions options(const Margin& rows, const Margin& columns, int stride) {
  return {stride, static_cast<int>(columns.before), static_cast<int>(columns.after), static_cast<int>(rows.before),
          static_cast<int>(rows.after)};
}

ggml_tensor* cut(Graph& g, ggml_tensor* x, const Margin& rows, const Margin& columns, int64_t h, int64_t w) {
  return nn::crop(g, x, rows.before, columns.before, h - rows.before - rows.after, w - columns.before - columns.after);
}

/// Appends the layers first .. last-1. `given` names the statistics of a norm; null where it takes its own.
template <class Given>
Pictures run(const Builder& b, size_t first, size_t last, Pictures p, const Way& rows, const Way& columns,
             Given given) {
  int64_t h = rows.input.length(), w = columns.input.length();
  int64_t kept_h = rows.kept_input.length(), kept_w = columns.kept_input.length();
  for (size_t i = first; i < last; ++i) {
    const Layer& l = b.n.chain.layers[i];
    const Margin &r = rows.margins[i - first], &c = columns.margins[i - first];
    const auto tap = [&] {
      if (!l.tap.empty()) b.g.tap(l.tap, p.x, {1, l.out, h, w});
    };
    switch (l.kind) {
      case Kind::conv:
        p.x = b.conv(p.x, l.name, options(r, c, 1));
        h += r.before + r.after - l.kernel + 1, w += c.before + c.after - l.kernel + 1;
        break;
      case Kind::up:
        p.x = b.conv(nn::upsample_nearest2(b.g, p.x), l.name, options(r, c, 1));
        h = 2 * h + r.before + r.after - 2, w = 2 * w + c.before + c.after - 2;
        break;
      case Kind::down:
        p.x = b.conv(p.x, l.name, options(r, c, 2));
        h = (h + r.before + r.after - 3) / 2 + 1, w = (w + c.before + c.after - 3) / 2 + 1;
        break;
      case Kind::norm:
        if (l.begins) p.kept = p.x, kept_h = h, kept_w = w;
        p.x = b.norm(p.x, l.name, given(i));
        break;
      case Kind::add: {
        ggml_tensor* x = cut(b.g, p.kept, r, c, kept_h, kept_w);
        p.x = nn::add(b.g, l.shortcut ? b.conv(x, l.name) : x, p.x);
        p.kept = nullptr;
        break;
      }
      case Kind::attention: p.x = b.attention(p.x, l, h, w); break;
    }
    tap();
    if (l.silu) p.x = nn::silu(b.g, p.x);
  }
  p.rows = {0, h}, p.columns = {0, w}, p.kept_rows = {0, kept_h}, p.kept_columns = {0, kept_w};
  return p;
}

/// Where `point` is an end of the chain, pictures lie as they are exchanged with others.
bool is_end(const Chain& chain, size_t point) { return point == 0 || point == chain.size(); }

ggml_tensor* input_picture(Graph& g, const char* name, bool end, int64_t c, int64_t h, int64_t w) {
  if (end) return g.input(name, DType::f32, {1, c, h, w});
  return nn::from_channels_last(g, g.input(name, DType::f32, {1, h, w, c}));
}

void output_picture(Graph& g, const char* name, ggml_tensor* x, bool end, int64_t c, int64_t h, int64_t w) {
  if (end)
    g.output(name, x, {1, c, h, w});
  else
    g.output(name, nn::to_channels_last(g, x), {1, h, w, c});
}

}  // namespace

std::unique_ptr<Graph> build_whole(const Network& n, int64_t h, int64_t w, bool taps) {
  const size_t end = n.chain.size();
  auto graph = new_graph(n, end, taps);
  const Point &first = n.chain.points.front(), &last = n.chain.points.back();
  const Way rows = way_back(n.chain, 0, end, {0, h << last.shift}, h, false);
  const Way columns = way_back(n.chain, 0, end, {0, w << last.shift}, w, false);
  Pictures p;
  p.x = input_picture(*graph, "x", true, first.channels, h << first.shift, w << first.shift);
  p = run({*graph, n}, 0, end, p, rows, columns, [](size_t) -> ggml_tensor* { return nullptr; });
  output_picture(*graph, "y", p.x, true, last.channels, h << last.shift, w << last.shift);
  return graph;
}

std::string Segment::norm_input(size_t layer) const { return fmt::format("norm.{}", layer); }

std::unique_ptr<Graph> build_tile(const Network& n, const Segment& s, const Way& rows, const Way& columns) {
  auto graph = new_graph(n, s.to - s.from);
  Graph& g = *graph;
  const Point &from = n.chain.points[s.from], &to = n.chain.points[s.to];
  Pictures p;
  p.x = input_picture(g, "x", is_end(n.chain, s.from), from.channels, rows.input.length(), columns.input.length());
  if (from.kept_channels && rows.kept_input.length())
    p.kept = input_picture(g, "kept", false, from.kept_channels, rows.kept_input.length(), columns.kept_input.length());
  p = run({g, n}, s.from, s.to, p, rows, columns, [&](size_t i) {
    return g.input(s.norm_input(i), DType::f32, {2, n.chain.layers[i].in});
  });
  if (s.result) output_picture(g, "y", p.x, is_end(n.chain, s.to), to.channels, p.rows.length(), p.columns.length());
  if (s.kept) {
    ggml_tensor* kept = cut(g, p.kept, rows.kept, columns.kept, p.kept_rows.length(), p.kept_columns.length());
    output_picture(g, "kept", kept, false, to.kept_channels, p.rows.length(), p.columns.length());
  }
  if (s.statistics) g.output("statistics", nn::channel_statistics(g, p.x), {2, to.channels});
  return graph;
}

std::unique_ptr<Graph> build_keys(const Network& n, size_t layer, int64_t pixels, const State& state) {
  auto graph = new_graph(n, 2);
  Graph& g = *graph;
  const Builder b{g, n};
  const Layer& l = n.chain.layers[layer];
  ggml_tensor* x = input_picture(g, "x", false, l.in, 1, pixels);
  ggml_tensor* given = g.input("norm", DType::f32, {2, l.in});
  ggml_tensor* ids = g.input("ids", DType::i32, {pixels});
  ggml_tensor* normed = b.rows(b.norm(x, l.name + ".group_norm", given), l.in, pixels);
  const auto store = [&](const char* part, const char* name) {
    nn::store_rows(g, state.at(name), nn::reshape(g, b.linear(normed, l.name + part), {pixels, l.in}), ids);
  };
  store(".to_k", "keys");
  store(".to_v", "values");
  return graph;
}

std::unique_ptr<Graph> build_queries(const Network& n, size_t layer, int64_t pixels, const State& state) {
  auto graph = new_graph(n, 2);
  Graph& g = *graph;
  const Builder b{g, n};
  const Layer& l = n.chain.layers[layer];
  ggml_tensor* x = input_picture(g, "x", false, l.in, 1, pixels);
  ggml_tensor* given = g.input("norm", DType::f32, {2, l.in});
  ggml_tensor* normed = b.rows(b.norm(x, l.name + ".group_norm", given), l.in, pixels);
  const auto all = [&](const char* name) {
    ggml_tensor* t = state.at(name);
    return nn::reshape(g, t, {1, ggml_nrows(t), 1, l.in});
  };
  ggml_tensor *k = all("keys"), *v = all("values");
  ggml_tensor* y = b.attend(x, normed, k, v, l, 1, pixels);
  output_picture(g, "y", y, false, l.out, 1, pixels);
  g.output("statistics", nn::channel_statistics(g, y), {2, l.out});
  return graph;
}

}  // namespace danqing::vae
