#include "models/vae/tiled.h"

#include <algorithm>
#include <map>
#include <new>
#include <numeric>
#include <utility>

#include "base/try.h"
#include "base/units.h"
#include "device/host.h"
#include "models/vae/statistics.h"

namespace danqing::vae {
namespace {

constexpr int64_t kLeastPixels = 1024;                     ///< of attention at a time
constexpr int64_t kLeastQueries = 192;                     ///< fewer would read all keys too often
constexpr double kQueryOperations = double(1 << 30) * 64;  ///< of one graph: a second or less between two questions
                                                           ///< whether to stop

using Values = std::vector<float>;

/// A picture in host memory, [H, W, C] or (at the ends of the chain) [C, H, W].
template <class T>
struct View {
  T* data;
  int64_t c, h, w;
  bool planar;
};

size_t count(int64_t a, int64_t b, int64_t c) { return static_cast<size_t>(a * b * c); }

void gather(const View<const float>& from, Interval rows, Interval columns, Values& tile) {
  tile.resize(count(from.c, rows.length(), columns.length()));
  float* to = tile.data();
  const int64_t n = columns.length();
  for (int64_t c = 0; c < (from.planar ? from.c : 1); ++c)
    for (int64_t y = rows.begin; y < rows.end; ++y) {
      if (from.planar)
        to = std::copy_n(from.data + (c * from.h + y) * from.w + columns.begin, n, to);
      else
        to = std::copy_n(from.data + (y * from.w + columns.begin) * from.c, n * from.c, to);
    }
}

void scatter(const Tensor& tile, Interval rows, Interval columns, const View<float>& to) {
  const float* from = tile.data.data();
  const int64_t n = columns.length() * (to.planar ? 1 : to.c);
  for (int64_t c = 0; c < (to.planar ? to.c : 1); ++c)
    for (int64_t y = rows.begin; y < rows.end; ++y, from += n)
      std::copy_n(
          from, n,
          to.planar ? to.data + (c * to.h + y) * to.w + columns.begin : to.data + (y * to.w + columns.begin) * to.c);
}

Interval scaled(Interval latents, int shift) { return {latents.begin << shift, latents.end << shift}; }

}  // namespace

/// What one run knows while it goes on.
struct TiledRun::Call {
  const float* source;
  const std::function<float*()>& target;
  const std::function<bool()>& cancelled;
  const TileProgress& progress;
  Values x, kept;                  ///< the pictures at the last kept point
  Values spare;                    ///< of a picture that is no longer needed: the next one of the same size takes it
  std::map<size_t, Values> norms;  ///< statistics of the norms (and attentions) so far, by layer
  double done = 0, all = 1;

  Values take(size_t count) {
    Values v = std::exchange(spare, {});
    if (v.size() == count) return v;
    v = Values();  // before the new one is there
    v.resize(count);
    return v;
  }
  void advance(double work) {
    done += work;
    if (progress) progress(std::min(1.0, done / all));
  }
};

TiledRun::TiledRun(const Network& n, std::shared_ptr<Device> device, int64_t h, int64_t w, const Tiling& tiling)
    : n_(n),
      device_(std::move(device)),
      h_(h),
      w_(w),
      tile_(std::min(tiling.tile, std::max(h, w))),
      schedule_(make_schedule(n.chain, h, w, tile_, tiling.host_memory)) {}

int64_t TiledRun::keys_at_once() const { return std::min(pixels(), std::max(kLeastPixels, tile_ * tile_)); }

int64_t TiledRun::queries_at_once(int64_t channels) const {
  const double each = 4 * static_cast<double>(pixels()) * static_cast<double>(channels);
  const auto wanted = static_cast<int64_t>(std::min(kQueryOperations / each, 1e15));
  return std::min(keys_at_once(), std::max(kLeastQueries, wanted));
}

std::vector<State::Entry> TiledRun::cache(size_t layer) const {
  const Shape shape{pixels(), n_.chain.layers[layer].in};
  return {{"keys", DType::f32, shape}, {"values", DType::f32, shape}};
}

std::vector<TiledRun::Group> TiledRun::groups(const Pass& p, int64_t latents) const {
  const Segment& s = p.segment;
  std::map<std::vector<int64_t>, Group> by_shape;
  for (const Interval& i : cut_axis(latents, p.tile)) {
    Way way = way_back(n_.chain, s.from, s.to, scaled(i, n_.chain.points[s.to].shift), latents, s.kept);
    Group& g = by_shape[way.shape()];
    if (g.ways.empty()) g.example = way;
    g.latents.push_back(i);
    g.ways.push_back(std::move(way));
  }
  std::vector<Group> all;
  for (auto& [shape, group] : by_shape) all.push_back(std::move(group));
  return all;
}

Result<size_t> TiledRun::measure() {
  size_t most = 0;
  for (const Pass& p : schedule_.passes) {
    if (p.attention) {
      const size_t layer = p.segment.from;
      DQ_TRY(const auto state, State::describe(device_, cache(layer)));
      const int64_t channels = n_.chain.layers[layer].in;
      for (const bool keys : {true, false}) {
        const int64_t at_once = keys ? keys_at_once() : queries_at_once(channels);
        for (const int64_t n : {at_once, pixels() % at_once}) {
          if (n == 0) continue;
          Runner r(keys ? build_keys(n_, layer, n, *state) : build_queries(n_, layer, n, *state));
          most = std::max(most, static_cast<size_t>(state->placed_bytes()) + r.measure());
        }
      }
      continue;
    }
    for (const Group& rows : groups(p, h_))
      for (const Group& columns : groups(p, w_))
        most = std::max(most, Runner(build_tile(n_, p.segment, rows.example, columns.example)).measure());
  }
  return most;
}

size_t TiledRun::host_bytes() const {
  size_t most = 0;
  for (const Pass& p : schedule_.passes) {
    if (p.attention) continue;  // reads where the picture lies
    const Segment& s = p.segment;
    const Point &from = n_.chain.points[s.from], &to = n_.chain.points[s.to];
    const int64_t tall = std::min(p.tile, h_) << to.shift, wide = std::min(p.tile, w_) << to.shift;
    for (const Group& rows : groups(p, h_))
      for (const Group& columns : groups(p, w_)) {
        size_t values = count(from.channels, rows.example.input.length(), columns.example.input.length());
        values += count(from.kept_channels, rows.example.kept_input.length(), columns.example.kept_input.length());
        if (s.result) values += count(std::max(to.channels, to.kept_channels), tall, wide);
        most = std::max(most, values * sizeof(float));
      }
  }
  return schedule_.kept_bytes + most;
}

Result<void> TiledRun::tiles(const Pass& p, Call& call) {
  const Segment& s = p.segment;
  const Point &from = n_.chain.points[s.from], &to = n_.chain.points[s.to];
  const bool begins = s.from == 0, ends = s.to == n_.chain.size();
  const auto host = [&](const float* data, int64_t channels) {
    return View<const float>{data, channels, h_ << from.shift, w_ << from.shift, begins};
  };
  const View<const float> x = host(begins ? call.source : call.x.data(), from.channels);
  const View<const float> kept = host(call.kept.data(), from.kept_channels);
  const auto room = [&](int64_t channels) { return count(channels, h_ << to.shift, w_ << to.shift); };
  Values new_x, new_kept;
  if (s.result && !ends && !p.in_place)
    new_x = call.take(room(to.channels));
  else
    call.spare = Values();  // not {}: that would keep its memory
  if (s.kept) new_kept.resize(room(to.kept_channels));
  const auto target = [&](float* data, int64_t channels) {
    return View<float>{data, channels, h_ << to.shift, w_ << to.shift, ends};
  };
  const View<float> y = target(ends ? call.target() : p.in_place ? call.kept.data() : new_x.data(), to.channels);
  const View<float> y_kept = target(new_kept.data(), to.kept_channels);

  Statistics statistics;
  Values tile;
  for (const Group& rows : groups(p, h_))
    for (const Group& columns : groups(p, w_)) {
      Runner runner(build_tile(n_, s, rows.example, columns.example));
      for (size_t i = s.from; i < s.to; ++i)
        if (n_.chain.layers[i].kind == Layer::Kind::norm) DQ_CHECK(runner.set(s.norm_input(i), call.norms.at(i)));
      for (size_t i = 0; i < rows.ways.size(); ++i)
        for (size_t j = 0; j < columns.ways.size(); ++j) {
          gather(x, rows.ways[i].input, columns.ways[j].input, tile);
          DQ_CHECK(runner.set("x", tile));
          if (from.kept_channels) {
            gather(kept, rows.ways[i].kept_input, columns.ways[j].kept_input, tile);
            DQ_CHECK(runner.set("kept", tile));
          }
          DQ_CHECK(runner.run(call.cancelled));
          const Interval at_rows = scaled(rows.latents[i], to.shift), at_columns = scaled(columns.latents[j], to.shift);
          if (s.result) {
            DQ_TRY(const Tensor result, runner.read("y"));
            scatter(result, at_rows, at_columns, y);
          }
          if (s.kept) {
            DQ_TRY(const Tensor result, runner.read("kept"));
            scatter(result, at_rows, at_columns, y_kept);
          }
          if (s.statistics) {
            DQ_TRY(const Tensor sums, runner.read("statistics"));
            statistics.add(sums.data, at_rows.length() * at_columns.length());
          }
          call.advance(p.work * static_cast<double>(rows.latents[i].length() * columns.latents[j].length()) /
                       static_cast<double>(pixels()));
        }
    }
  if (s.statistics) call.norms[s.to] = statistics.finish(n_.groups, kNormEps);
  if (!s.result || ends) return {};
  if (p.in_place) {
    call.spare = std::exchange(call.x, std::exchange(call.kept, {}));
  } else if (to.kept_channels && !s.kept) {
    call.kept = std::move(call.x);
    call.x = std::move(new_x);
  } else {
    call.x = std::move(new_x);
    call.kept = std::move(new_kept);
  }
  return {};
}

Result<void> TiledRun::attention(const Pass& p, Call& call) {
  const size_t layer = p.segment.from;
  const int64_t channels = n_.chain.layers[layer].in;
  call.spare = Values();  // not {}: that would keep its memory
  DQ_TRY(const auto state, State::create(device_, cache(layer), "attention's keys and values"));
  Statistics statistics;
  for (const bool keys : {true, false}) {
    const int64_t at_once = keys ? keys_at_once() : queries_at_once(channels);
    std::unique_ptr<Runner> runner;
    for (int64_t first = 0, before = 0; first < pixels(); first += at_once) {
      const int64_t n = std::min(at_once, pixels() - first);
      if (n != before) {
        runner.reset();
        runner =
            std::make_unique<Runner>(keys ? build_keys(n_, layer, n, *state) : build_queries(n_, layer, n, *state));
        DQ_CHECK(runner->set("norm", call.norms.at(layer)));
        before = n;
      }
      const std::span<float> x(call.x.data() + first * channels, count(n, channels, 1));
      DQ_CHECK(runner->set("x", x));
      if (keys) {
        std::vector<int32_t> ids(static_cast<size_t>(n));
        std::iota(ids.begin(), ids.end(), static_cast<int32_t>(first));
        DQ_CHECK(runner->set("ids", ids));
      }
      DQ_CHECK(runner->run(call.cancelled));
      if (keys) continue;
      DQ_TRY(const Tensor y, runner->read("y"));
      std::copy(y.data.begin(), y.data.end(), x.begin());  // keys and values of all pixels are there already
      DQ_TRY(const Tensor sums, runner->read("statistics"));
      statistics.add(sums.data, n);
      call.advance(p.work * static_cast<double>(n) / static_cast<double>(pixels()));
    }
  }
  if (p.segment.statistics) call.norms[p.segment.to] = statistics.finish(n_.groups, kNormEps);
  return {};
}

Result<void> TiledRun::run(const float* x, const std::function<float*()>& y, const std::function<bool()>& cancelled,
                           const TileProgress& progress) {
  const auto too_little = [this](const std::string& got) {
    return fail(ErrorCode::does_not_fit,
                "[vae] expected {} of host memory for the pictures between passes over the tiles, got {}",
                format_bytes(host_bytes()), got);
  };
  const uint64_t available = host::memory().available;  // the system promises more than there is
  if (available != 0 && host_bytes() > available) return too_little(format_bytes(available));
  Call call{x, y, cancelled, progress, {}, {}, {}, {}, 0, schedule_.work()};
  try {
    for (const Pass& p : schedule_.passes) DQ_CHECK(p.attention ? attention(p, call) : tiles(p, call));
  } catch (const std::bad_alloc&) {
    return too_little("a refusal");
  }
  return {};
}

}  // namespace danqing::vae
