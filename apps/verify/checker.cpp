#include "verify/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/float_bits.h"
#include "base/text.h"

namespace danqing::app::verify {
namespace {

/// Position of a float on the line of all floats, so that neighbours differ by one.
int64_t place(uint32_t bits, uint32_t sign) { return (bits & sign) ? -static_cast<int64_t>(bits & (sign - 1)) : bits; }
double ulps(float a, float b, bool bf16) {
  if (bf16) return static_cast<double>(std::abs(place(f32_to_bf16(a), 0x8000u) - place(f32_to_bf16(b), 0x8000u)));
  return static_cast<double>(
      std::abs(place(std::bit_cast<uint32_t>(a), 0x80000000u) - place(std::bit_cast<uint32_t>(b), 0x80000000u)));
}

struct Difference {
  double max_abs = 0, rel_l2 = 0, max_rel = 0, max_ulp = 0;
  int64_t different = 0;
  bool finite = true;
};

Difference difference(const Tensor& got, const Tensor& expected, const Tolerance& t) {
  Difference d;
  double num = 0, den = 0;
  const bool count_ulps = t.measure == Measure::bf16_ulp || t.measure == Measure::f32_ulp;
  for (size_t i = 0; i < expected.data.size(); ++i) {
    const double e = static_cast<double>(expected.data[i]), delta = std::fabs(static_cast<double>(got.data[i]) - e);
    if (!std::isfinite(delta)) d.finite = false;
    if (delta != 0) ++d.different;
    d.max_abs = std::max(d.max_abs, delta);
    if (delta != 0)
      d.max_rel = std::max(d.max_rel, e != 0 ? delta / std::fabs(e) : std::numeric_limits<double>::infinity());
    if (count_ulps && delta != 0)
      d.max_ulp = std::max(d.max_ulp, ulps(got.data[i], expected.data[i], t.measure == Measure::bf16_ulp));
    num += delta * delta;
    den += e * e;
  }
  d.rel_l2 = den > 0 ? std::sqrt(num / den) : std::sqrt(num);
  return d;
}

/// How far the measure is into its limit: at most 1 passes.
double badness(const Difference& d, const Tolerance& t, int64_t count) {
  const auto over = [](double v, double limit) {
    return v == 0 ? 0.0 : limit > 0 ? v / limit : std::numeric_limits<double>::infinity();
  };
  switch (t.measure) {
    case Measure::relative_l2: return over(d.rel_l2, t.limit);
    case Measure::max_abs: return over(d.max_abs, t.limit);
    case Measure::max_relative: return over(d.max_rel, t.limit);
    case Measure::bf16_ulp:
    case Measure::f32_ulp: return over(d.max_ulp, t.limit);
    case Measure::levels:
      return std::max(
          over(d.max_abs, t.limit),
          over(static_cast<double>(d.different) / static_cast<double>(std::max<int64_t>(count, 1)), t.share));
    case Measure::exact: break;
  }
  return over(static_cast<double>(d.different), 0);
}

}  // namespace

Row& Checker::row(const std::string& name) {
  for (Row& r : rows_)
    if (r.name == name) return r;
  Row r;
  r.stage = stage_;
  r.name = name;
  r.status = Status::passed;
  rows_.push_back(std::move(r));
  return rows_.back();
}

bool Checker::judge(const std::string& name, const Tensor& expected, const Tensor& got, const Tolerance& t) {
  Row& r = row(name);
  ++r.values;
  if (got.shape != expected.shape) {
    r.status = Status::failed;
    r.note = fmt::format("expected shape {}, got {}", to_string(expected.shape), to_string(got.shape));
    return false;
  }
  const Difference d = difference(got, expected, t);
  const double bad = d.finite ? badness(d, t, expected.count()) : std::numeric_limits<double>::infinity();
  const bool ok = bad <= 1;
  if (!r.measured || bad > r.badness) {
    r.badness = bad;
    r.tolerance = t.text();
    r.rule = t.rule;
  }
  r.measured = true;
  r.max_abs = std::max(r.max_abs, d.max_abs);
  r.rel_l2 = std::max(r.rel_l2, d.rel_l2);
  if (!d.finite) r.max_abs = r.rel_l2 = std::numeric_limits<double>::quiet_NaN();
  if (ok) return true;
  r.status = Status::failed;
  if (!d.finite)
    r.note = "NaN or infinite values";
  else if (t.measure == Measure::levels || t.measure == Measure::exact)
    r.note = fmt::format("{} of {} values differ, by {:g} at most; tolerance {} ({})", d.different, expected.count(),
                         d.max_abs, t.text(), t.rule);
  else if (t.measure == Measure::max_relative)
    r.note = fmt::format("one value differs by {:.2e} of itself; tolerance {} ({})", d.max_rel, t.text(), t.rule);
  else if (t.measure == Measure::bf16_ulp || t.measure == Measure::f32_ulp)
    r.note = fmt::format("one value differs by {:g} ulp; tolerance {} ({})", d.max_ulp, t.text(), t.rule);
  return false;
}

void Checker::compare(const std::string& name, Golden& golden, const std::string& key, const Tensor& got,
                      const Tolerance& t) {
  auto expected = golden.tensor(key);
  if (!expected) return fail(name, expected.error().message);
  golden.mark(key, judge(name, *expected, got, t) ? Mark::compared : Mark::failed);
}

void Checker::compare(const std::string& name, const Tensor& expected, const Tensor& got, const Tolerance& t) {
  judge(name, expected, got, t);
}

void Checker::same(const std::string& name, std::span<const int64_t> expected, std::span<const int64_t> got) {
  Row& r = row(name);
  ++r.values;
  r.tolerance = "exact";
  r.rule = "exact";
  if (std::equal(expected.begin(), expected.end(), got.begin(), got.end())) return;
  r.status = Status::failed;
  size_t at = 0;
  while (at < expected.size() && at < got.size() && expected[at] == got[at]) ++at;
  const auto value = [at](std::span<const int64_t> v) { return at < v.size() ? fmt::format("{}", v[at]) : "the end"; };
  r.note = fmt::format("expected {} numbers, got {}; at {}: expected {}, got {}", expected.size(), got.size(), at,
                       value(expected), value(got));
}

void Checker::same(const std::string& name, Golden& golden, const std::string& key, std::span<const int64_t> got) {
  auto expected = golden.integers(key);
  if (!expected) return fail(name, expected.error().message);
  same(name, *expected, got);
  golden.mark(key,
              std::equal(expected->begin(), expected->end(), got.begin(), got.end()) ? Mark::compared : Mark::failed);
}

void Checker::same(const std::string& name, std::string_view expected, std::string_view got) {
  require(name, expected == got, fmt::format("expected '{}', got '{}'", one_line(expected), one_line(got)));
}

void Checker::require(const std::string& name, bool ok, const std::string& note) {
  Row& r = row(name);
  ++r.values;
  if (r.tolerance.empty()) r.tolerance = r.rule = "exact";
  if (ok) return;
  r.status = Status::failed;
  r.note = note;
}

void Checker::bf16(const std::string& name, Golden& bf16_golden, const std::string& key, Golden& f32_golden,
                   const std::string& f32_key, const Tensor& got, std::optional<double> torch_error, double floor) {
  if (!torch_error && bf16_golden.has(key) && f32_golden.has(f32_key)) {
    auto a = bf16_golden.tensor(key), b = f32_golden.tensor(f32_key);
    if (a && b && a->shape == b->shape) torch_error = relative_l2(*a, *b);
  }
  if (!torch_error) return fail(name, "no measured bf16 error for it, and no f32 golden to measure it with");
  const auto tolerance = [&](bool against_f32) {
    Tolerance t = bf16_tolerance(*torch_error, against_f32);
    if (t.limit < floor)
      t.limit = floor, t.rule = fmt::format("the f32 tolerance {:.0e}, torch's bf16 error is below it", floor);
    return t;
  };
  if (f32_golden.has(f32_key)) compare(name + " vs f32", f32_golden, f32_key, got, tolerance(true));
  if (bf16_golden.has(key)) compare(name, bf16_golden, key, got, tolerance(false));
}

void Checker::fail(const std::string& name, const std::string& why) {
  Row& r = row(name);
  r.status = Status::failed;
  r.note = why;
  if (!r.values) r.values = 1;
}

void Checker::skip(const std::string& name, const std::string& why, int values) {
  Row& r = row(name);
  if (r.status == Status::failed) return;
  r.status = Status::not_run;
  r.note = why;
  r.values += values;
}

Tensor pixels(const std::vector<Image>& images) {
  if (images.empty()) return {};
  Tensor t;
  t.shape = {static_cast<int64_t>(images.size()), images[0].height, images[0].width, 3};
  for (const Image& i : images) t.data.insert(t.data.end(), i.pixels.begin(), i.pixels.end());
  if (element_count(t.shape) != t.count()) t.shape = {t.count()};  // sizes that differ: the comparison will say so
  return t;
}

double relative_l2(const Tensor& got, const Tensor& expected) { return difference(got, expected, {}).rel_l2; }

}  // namespace danqing::app::verify
