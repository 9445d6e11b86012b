#include "pipeline/preview.h"

#include <algorithm>
#include <cmath>

#include "base/try.h"

namespace danqing {
namespace {

constexpr int64_t kMaxSamples = 4096;  // of one picture; more say the same again
constexpr double kKeep = 0.9;          // weight of the past when a new picture comes
constexpr double kRidge = 1e-3;        // relative; keeps channels that a picture does not use near zero

}  // namespace

Result<LatentPreview> LatentPreview::parse(const Json& json, const std::string& where) {
  DQ_TRY(const JsonObject o, JsonObject::of(json, where));
  DQ_TRY(const int64_t channels, o.integer_in("latent_channels", 1, 1024));
  LatentPreview p;
  const Json *factors = o.get("factors"), *bias = o.get("bias");
  const auto row = [&](const Json& j) -> Result<std::array<double, 3>> {
    if (!j.is_array() || j.size() != 3 || !j[0].is_number() || !j[1].is_number() || !j[2].is_number())
      return bad_input("[preview] {}: expected three numbers for red, green and blue", where);
    return std::array<double, 3>{j[0].get<double>(), j[1].get<double>(), j[2].get<double>()};
  };
  if (!factors || !factors->is_array() || static_cast<int64_t>(factors->size()) != channels || !bias)
    return bad_input("[preview] {}: expected {} factors and a bias", where, channels);
  for (const Json& f : *factors) {
    DQ_TRY(const auto values, row(f));
    p.map_.push_back(values);
  }
  DQ_TRY(const auto values, row(*bias));
  p.map_.push_back(values);
  p.channels_ = channels;
  return p;
}

Json LatentPreview::to_json() const {
  Json factors = Json::array();
  for (size_t i = 0; i + 1 < map_.size(); ++i) factors.push_back(map_[i]);
  return {{"latent_channels", channels_}, {"factors", factors}, {"bias", map_.empty() ? Json() : Json(map_.back())}};
}

void LatentPreview::learn(const Tensor& z, const Tensor& decoded) {
  if (z.shape.size() != 4 || decoded.shape.size() != 4 || z.size(0) != 1 || decoded.size(0) != 1) return;
  const int64_t channels = z.size(1), h = z.size(2), w = z.size(3);
  if (decoded.size(1) != 3 || h < 1 || w < 1 || decoded.size(2) % h || decoded.size(3) % w) return;
  const int64_t sy = decoded.size(2) / h, sx = decoded.size(3) / w, width = decoded.size(3);
  const auto n = static_cast<size_t>(channels) + 1;
  if (channels != channels_ || a_.size() != n * n) {
    if (channels != channels_) map_.clear();
    channels_ = channels;
    a_.assign(n * n, 0);
    b_.assign(n, {});
  }
  for (double& v : a_) v *= kKeep;
  for (auto& v : b_)
    for (double& e : v) e *= kKeep;
  const int64_t stride = std::max<int64_t>(1, h * w / kMaxSamples);
  std::vector<double> x(n, 1.0);
  for (int64_t at = 0; at < h * w; at += stride) {
    for (int64_t c = 0; c < channels; ++c) x[static_cast<size_t>(c)] = z.data[static_cast<size_t>(c * h * w + at)];
    std::array<double, 3> y{};
    for (int64_t c = 0; c < 3; ++c) {
      double sum = 0;
      for (int64_t dy = 0; dy < sy; ++dy)
        for (int64_t dx = 0; dx < sx; ++dx)
          sum += decoded.data[static_cast<size_t>((c * h * sy + at / w * sy + dy) * width + at % w * sx + dx)];
      y[static_cast<size_t>(c)] = sum / static_cast<double>(sx * sy);
    }
    if (!std::isfinite(y[0] + y[1] + y[2])) continue;
    for (size_t i = 0; i < n; ++i) {
      for (size_t k = 0; k <= i; ++k) a_[i * n + k] += x[i] * x[k];
      for (size_t c = 0; c < 3; ++c) b_[i][c] += x[i] * y[c];
    }
  }
  solve();
}

// Cholesky of the ridged normal equations.
void LatentPreview::solve() {
  const size_t n = b_.size();
  double trace = 0;
  for (size_t i = 0; i < n; ++i) trace += a_[i * n + i];
  std::vector<double> l = a_;
  for (size_t i = 0; i < n; ++i) l[i * n + i] += kRidge * trace / static_cast<double>(n);
  for (size_t i = 0; i < n; ++i)
    for (size_t k = 0; k <= i; ++k) {
      double sum = l[i * n + k];
      for (size_t j = 0; j < k; ++j) sum -= l[i * n + j] * l[k * n + j];
      if (i == k) {
        if (!(sum > 0)) return;  // nothing learned yet, or not finite: the old map stays
        l[i * n + i] = std::sqrt(sum);
      } else {
        l[i * n + k] = sum / l[k * n + k];
      }
    }
  std::vector<std::array<double, 3>> map = b_;
  for (size_t c = 0; c < 3; ++c) {
    for (size_t i = 0; i < n; ++i) {
      for (size_t k = 0; k < i; ++k) map[i][c] -= l[i * n + k] * map[k][c];
      map[i][c] /= l[i * n + i];
    }
    for (size_t i = n; i-- > 0;) {
      for (size_t k = i + 1; k < n; ++k) map[i][c] -= l[k * n + i] * map[k][c];
      map[i][c] /= l[i * n + i];
    }
  }
  map_ = std::move(map);
}

Image LatentPreview::draw(const Tensor& z) const {
  if (z.shape.size() != 4 || z.size(0) != 1 || !ready(z.size(1))) return {};
  const auto area = static_cast<size_t>(z.size(2) * z.size(3));
  Image image{static_cast<int>(z.size(3)), static_cast<int>(z.size(2)), std::vector<uint8_t>(3 * area)};
  std::vector<float> plane(area);
  for (size_t c = 0; c < 3; ++c) {
    std::fill(plane.begin(), plane.end(), static_cast<float>(map_.back()[c]));
    for (size_t k = 0; k + 1 < map_.size(); ++k) {
      const auto f = static_cast<float>(map_[k][c]);
      const float* from = z.data.data() + k * area;
      for (size_t i = 0; i < area; ++i) plane[i] += f * from[i];
    }
    for (size_t i = 0; i < area; ++i) {
      const float v = plane[i] * 127.5f + 127.5f;
      image.pixels[3 * i + c] = v >= 255 ? 255 : v > 0 ? static_cast<uint8_t>(v) : 0;  // NaN becomes 0
    }
  }
  return image;
}

}  // namespace danqing
