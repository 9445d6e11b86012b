#include "models/vae/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace danqing::vae {
namespace {

using Kind = Layer::Kind;
constexpr double kNever = std::numeric_limits<double>::infinity();

/// From one kept point to the next.
struct Leg {
  double work = kNever;
  double bytes = 0;  ///< kept while it runs
  bool in_place = false;
};

class Planner {
 public:
  Planner(const Chain& chain, int64_t h, int64_t w, int64_t tile) : chain_(chain), h_(h), w_(w), tile_(tile) {
    largest_ = largest(0, chain.size());
    for (size_t i = 0; i <= chain.size(); ++i)
      if (i == 0 || i == chain.size() || waits(i) || chain.layers[i].kind == Kind::up ||
          (i > 0 && chain.layers[i - 1].kind == Kind::attention))
        stops_.push_back(i);
    legs_.resize(stops_.size() * stops_.size());
    for (size_t a = 0; a < stops_.size(); ++a)
      for (size_t b = a + 1; b < stops_.size(); ++b) {
        leg(a, b) = make_leg(stops_[a], stops_[b]);
        if (stops_[b] < chain.size() && chain.layers[stops_[b]].kind == Kind::attention) break;
        if (chain.layers[stops_[a]].kind == Kind::attention) break;
      }
  }

  Schedule plan(double memory) const {
    std::vector<size_t> way = shortest([&](const Leg& l) { return l.bytes <= memory ? l.work : kNever; },
                                       [](double a, double b) { return a + b; });
    if (way.empty()) {
      const auto bytes = [](const Leg& l) { return l.work < kNever ? l.bytes : kNever; };
      const std::vector<size_t> least = shortest(bytes, [](double a, double b) { return std::max(a, b); });
      double needed = 0;
      for (size_t i = 0; i + 1 < least.size(); ++i) needed = std::max(needed, leg(least[i], least[i + 1]).bytes);
      return plan(needed);
    }
    Schedule s;
    for (size_t i = 0; i + 1 < way.size(); ++i) append(s, way[i], way[i + 1]);
    return s;
  }

 private:
  bool waits(size_t point) const { return point < chain_.size() && chain_.layers[point].synchronises(); }
  Leg& leg(size_t a, size_t b) { return legs_[a * stops_.size() + b]; }
  const Leg& leg(size_t a, size_t b) const { return legs_[a * stops_.size() + b]; }
  double bytes(double values) const {
    return values * static_cast<double>(h_) * static_cast<double>(w_) * sizeof(float);
  }

  /// Values per latent of the largest pictures from one point to another.
  double largest(size_t from, size_t to) const {
    double most = 0;
    for (size_t i = from; i <= to; ++i) most = std::max(most, chain_.points[i].values());
    return most;
  }
  int64_t tile(size_t from, size_t to) const {
    const double side = static_cast<double>(tile_) * std::sqrt(largest_ / largest(from, to));
    return std::min(std::max(h_, w_), static_cast<int64_t>(side));
  }

  /// Of a pass over all tiles, from the work of one in the middle.
  double pass_work(size_t from, size_t to) const {
    const int shift = chain_.points[to].shift;
    const int64_t side = tile(from, to);
    const std::vector<Interval> rows = cut_axis(h_, side), columns = cut_axis(w_, side);
    const auto pixels = [shift](const std::vector<Interval>& all) {
      return Interval{all[all.size() / 2].begin << shift, all[all.size() / 2].end << shift};
    };
    double sum = 0;
    Interval r = pixels(rows), c = pixels(columns);
    for (size_t i = to; i-- > from;) {  // what a layer computes is what the next one needs
      sum += danqing::vae::work(chain_.layers[i]) * static_cast<double>(r.length()) * static_cast<double>(c.length());
      r = way_back(chain_, i, i + 1, r, h_, false).input;
      c = way_back(chain_, i, i + 1, c, w_, false).input;
    }
    return sum * static_cast<double>(rows.size() * columns.size());
  }

  Leg make_leg(size_t from, size_t to) const {
    Leg l;
    const Point &a = chain_.points[from], &b = chain_.points[to];
    if (from < chain_.size() && chain_.layers[from].kind == Kind::attention) {
      if (to != from + 1) return l;
      const double pixels = static_cast<double>(h_) * static_cast<double>(w_);
      l.in_place = true;
      l.bytes = bytes(a.values());
      l.work = pixels * (danqing::vae::work(chain_.layers[from]) + 2 * pixels * static_cast<double>(a.channels));
      return l;
    }
    l.work = pass_work(from, to);
    for (size_t i = from + 1; i < to; ++i)
      if (waits(i)) l.work += pass_work(from, i);
    const Layer& last = chain_.layers[to - 1];
    // norm, convolution, addition: the kept picture is read where the result goes, and nowhere else.
    l.in_place = a.kept_channels != 0 && to == from + 3 && last.kind == Kind::add && !last.shortcut;
    double values = from == 0 ? 0 : a.values();
    if (shares_kept(from, to))
      values = (from == 0 ? b.values() : a.values() + plain(b));
    else if (to < chain_.size() && !l.in_place)
      values += b.values();
    l.bytes = bytes(values);
    return l;
  }
  static double plain(const Point& p) { return Point{p.channels, 0, p.shift}.values(); }
  /// The picture at `from` is the one kept at `to`.
  bool shares_kept(size_t from, size_t to) const {
    return to == from + 2 && chain_.layers[from].begins && chain_.points[to].kept_channels != 0 && from != 0;
  }

  template <class Cost, class Join>
  std::vector<size_t> shortest(Cost cost, Join join) const {
    const size_t n = stops_.size();
    std::vector<double> best(n, kNever);
    std::vector<size_t> before(n, 0), way;
    best[0] = 0;
    for (size_t b = 1; b < n; ++b)
      for (size_t a = 0; a < b; ++a) {
        const double total = join(best[a], cost(leg(a, b)));
        if (total < best[b]) best[b] = total, before[b] = a;
      }
    if (best[n - 1] == kNever) return {};
    for (size_t i = n - 1; i != 0; i = before[i]) way.push_back(i);
    way.push_back(0);
    std::reverse(way.begin(), way.end());
    return way;
  }

  void append(Schedule& s, size_t a, size_t b) const {
    const size_t from = stops_[a], to = stops_[b];
    const Leg& l = leg(a, b);
    s.kept_bytes = std::max(s.kept_bytes, static_cast<uint64_t>(l.bytes));
    Pass p;
    p.segment.from = from;
    if (l.in_place && chain_.layers[from].kind == Kind::attention) {
      p.segment.to = to, p.segment.result = true, p.segment.statistics = waits(to);
      p.attention = p.in_place = true, p.work = l.work;
      s.passes.push_back(p);
      return;
    }
    for (size_t i = from + 1; i <= to; ++i) {
      if (i < to && !waits(i)) continue;
      p.segment.to = i, p.segment.statistics = waits(i);
      p.work = pass_work(from, i), p.tile = tile(from, i);
      if (i == to) {
        p.segment.result = true, p.in_place = l.in_place;
        p.segment.kept = chain_.points[to].kept_channels != 0 && !shares_kept(from, to);
      }
      s.passes.push_back(p);
    }
  }

  const Chain& chain_;
  int64_t h_, w_, tile_;
  double largest_ = 0;
  std::vector<size_t> stops_;
  std::vector<Leg> legs_;
};

}  // namespace

double Schedule::work() const {
  return std::accumulate(passes.begin(), passes.end(), 0.0, [](double sum, const Pass& p) { return sum + p.work; });
}

std::vector<Interval> cut_axis(int64_t latents, int64_t tile) {
  const int64_t count = (latents + tile - 1) / tile, least = latents / count, longer = latents % count;
  std::vector<Interval> all;
  for (int64_t i = 0, at = 0; i < count; ++i) {
    const int64_t n = least + (i < longer ? 1 : 0);
    all.push_back({at, at + n});
    at += n;
  }
  return all;
}

Schedule make_schedule(const Chain& chain, int64_t h, int64_t w, int64_t tile, uint64_t memory) {
  return Planner(chain, h, w, tile).plan(static_cast<double>(memory));
}

}  // namespace danqing::vae
