#include "testing/testing.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

namespace danqing::testing {

std::filesystem::path data(std::string_view relative) { return std::filesystem::path(DANQING_TEST_DATA) / relative; }

std::filesystem::path mini_model() { return std::filesystem::path(DANQING_SOURCE_DIR) / "models/danqing-mini"; }

Golden golden(std::string_view relative_without_extension) {
  const std::string base = (data("fixtures") / relative_without_extension).string();
  Golden g;
  auto source = TensorSource::open(base + ".safetensors");
  EXPECT_TRUE(source.ok()) << (source.ok() ? "" : source.error().message);
  g.source = source.ok() ? *source : TensorSource::from_memory({}, {});
  auto json = read_json(base + ".json");
  if (json.ok()) g.json = *json;
  return g;
}

Tensor Golden::f32(std::string_view name) const {
  auto t = read_f32(*source, name);
  EXPECT_TRUE(t.ok()) << (t.ok() ? "" : t.error().message);
  return t.ok() ? *t : Tensor();
}

std::vector<int32_t> Golden::ids(std::string_view name) const {
  auto v = read_integers(*source, name);
  EXPECT_TRUE(v.ok()) << (v.ok() ? "" : v.error().message);
  return v.ok() ? std::vector<int32_t>(v->begin(), v->end()) : std::vector<int32_t>();
}

Difference difference(const Tensor& got, const Tensor& expected) {
  double num = 0, den = 0, max_abs = 0;
  for (size_t i = 0; i < expected.data.size(); ++i) {
    const double d = static_cast<double>(got.data[i]) - expected.data[i];
    max_abs = std::isnan(d) ? d : std::max(max_abs, std::fabs(d));
    num += d * d;
    den += static_cast<double>(expected.data[i]) * expected.data[i];
  }
  return {max_abs, den > 0 ? std::sqrt(num / den) : std::sqrt(num)};
}

::testing::AssertionResult close(const Tensor& got, const Tensor& expected, double rel_l2) {
  if (got.shape != expected.shape)
    return ::testing::AssertionFailure() << "shape " << to_string(got.shape) << ", expected "
                                         << to_string(expected.shape);
  const Difference d = difference(got, expected);
  auto r = d.rel_l2 <= rel_l2 ? ::testing::AssertionSuccess() : ::testing::AssertionFailure();  // NaN fails
  return r << "relative L2 " << d.rel_l2 << " (tolerance " << rel_l2 << "), max abs " << d.max_abs;
}

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "danqing-test-XXXXXX").string();
  if (const char* p = ::mkdtemp(pattern.data())) path_ = p;
}

TempDir::~TempDir() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace danqing::testing
