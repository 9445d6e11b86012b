// What the process really takes beside what was announced.
#include <fmt/format.h>

#include <fstream>

#include "models/ernie_image/transformer.h"
#include "residency/subjects.h"

namespace danqing {
namespace {

using namespace danqing::testing;

/// A line of /proc/self/status in bytes; 0 where there is none.
uint64_t status(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.rfind(key + ":", 0) == 0) return std::stoull(line.substr(key.size() + 1)) << 10;
  return 0;
}
/// From now on VmHWM is the peak of what follows. False where the system has no such thing.
bool forget_peak() {
  std::ofstream("/proc/self/clear_refs") << "5";
  const uint64_t now = status("VmRSS"), peak = status("VmHWM");
  return now != 0 && peak < now + (uint64_t{4} << 20);
}

/// A safetensors file of zeros that takes no room on the disk, all in bf16: a vector in f32 would be used where it is
/// mapped, and the kernel maps up to 2 MiB around what is touched.
void write_zeros(const std::filesystem::path& path, const std::vector<TensorSpec>& specs) {
  Json header = Json::object();
  uint64_t offset = 0;
  for (const TensorSpec& s : specs) {
    const uint64_t end = offset + static_cast<uint64_t>(element_count(s.shape)) * 2;
    header[s.name] = {{"dtype", "BF16"}, {"shape", s.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = dump_json(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(&length), 8) << text;
  std::filesystem::resize_file(path, 8 + length + offset);
}

/// 16 layers of 13 MiB in bf16: 209 MiB in all, of zeros that take no room on the disk.
class Resident : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer keeps what is freed";
#endif
    if (!forget_peak()) GTEST_SKIP() << "the system does not tell the peak of resident memory";
    const Json config = {{"hidden_size", 768},
                         {"num_attention_heads", 6},
                         {"num_layers", 16},
                         {"ffn_hidden_size", 2048},
                         {"in_channels", 8},
                         {"out_channels", 8},
                         {"patch_size", 1},
                         {"text_in_dim", 24},
                         {"rope_axes_dim", {32, 48, 48}},
                         {"rope_theta", 256},
                         {"eps", 1e-6},
                         {"qk_layernorm", true}};
    auto c = ernie_image::Config::parse(config, "test");
    ASSERT_TRUE(c.ok()) << c.error().message;
    write_zeros(dir_ / "model.safetensors", ernie_image::tensor_table(*c));
    DQ_ASSERT_OK(files_.source, TensorSource::open(dir_ / "model.safetensors"));
    files_.config = config;
  }

  void expect_announced(const WeightPolicy& policy) {
    const auto device = open_cpu(2);
    const std::vector<Tensor> text = {Tensor(Shape{8, 24})};
    const std::vector<int64_t> lengths = {8};
    ASSERT_TRUE(forget_peak());
    const uint64_t before = status("VmRSS"), file_pages = status("RssFile");
    {
      DQ_ASSERT_OK(const auto model, ernie_image::Transformer::load(device, files_, policy));
      for (int i = 0; i < 2; ++i) {
        const auto out = model->forward(Tensor(Shape{1, 8, 8, 8}), text, std::vector<float>{500});
        ASSERT_TRUE(out.ok()) << out.error().message;
      }
      const WeightSizes& s = model->weight_sizes();
      DQ_ASSERT_OK(const size_t computing, model->measure(1, 8, 8, lengths));
      const uint64_t announced = std::max(s.loading_bytes(policy.residency, policy.resident_groups),
                                          s.device_bytes(policy.residency, policy.resident_groups) + computing);
      EXPECT_EQ(device->peak_allocated(), announced);
      const uint64_t taken = status("VmHWM") - before;
      fmt::print("announced {} MiB, taken {} MiB, of them for files {}\n", announced >> 20, taken >> 20,
                 status("RssFile") >> 20);
      EXPECT_LE(taken, announced + announced / 20 + kBeside);
      if (policy.residency == Residency::streamed) {
        EXPECT_LT(taken, s.total / 2 + kBeside);
      }
    }
    EXPECT_EQ(device->allocated(), 0u);
    EXPECT_LT(status("RssFile"), file_pages + (uint64_t{12} << 20));  // the file is still open
  }

  /// Pages that are read ahead (here a tensor, 3 MiB), heap that is not given back: measured up to 6 MiB.
  static constexpr uint64_t kBeside = uint64_t{12} << 20;
  TempDir dir_;
  ComponentFiles files_{.role = "transformer"};
};

TEST_F(Resident, MappedWhole) { expect_announced({}); }
TEST_F(Resident, MappedStreamed) { expect_announced({{}, Residency::streamed, 0}); }
TEST_F(Resident, WidenedWhole) { expect_announced({DType::f32}); }
TEST_F(Resident, WidenedStreamed) { expect_announced({DType::f32, Residency::streamed, 2}); }
TEST_F(Resident, QuantisedStreamed) { expect_announced({DType::q8_0, Residency::streamed, 0}); }

/// A component that is loaded anew for every picture costs its pages' way from the disk's cache and nothing else.
TEST_F(Resident, LoadingMappedWeightsReadsNothing) {
  const auto device = open_cpu(1);
  for (int i = 0; i < 3; ++i) {
    const uint64_t before = status("VmRSS");
    DQ_ASSERT_OK(const auto model, ernie_image::Transformer::load(device, files_, {}));
    EXPECT_GT(model->weight_sizes().total, uint64_t{200} << 20);
    EXPECT_LT(status("VmRSS"), before + (uint64_t{4} << 20));
  }
}

}  // namespace
}  // namespace danqing
