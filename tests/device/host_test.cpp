// The machine as a made-up /sys and /proc describe it.
#include "device/host.h"

#include <fstream>

#include "testing/testing.h"

namespace danqing {
namespace {

class Host : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const auto file = root_.path() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  void cpu(int n, int package, int core) {
    const std::string dir = "sys/devices/system/cpu/cpu" + std::to_string(n) + "/topology/";
    write(dir + "physical_package_id", std::to_string(package));
    write(dir + "core_id", std::to_string(core));
  }
  int cores(const std::vector<int>& cpus) const { return host::physical_cores(cpus, root_.path()); }
  testing::TempDir root_;
};

TEST_F(Host, SiblingsCountOnce) {
  for (int n = 0; n < 8; ++n) cpu(n, n / 2 % 2, n % 2);  // 2 packages of 2 cores of 2 threads
  EXPECT_EQ(cores({0, 1, 2, 3, 4, 5, 6, 7}), 4);
  EXPECT_EQ(cores({0, 4}), 1);  // siblings
  EXPECT_EQ(cores({0, 2}), 2);  // the same core number in two packages
  EXPECT_EQ(cores({1}), 1);
}

TEST_F(Host, WithoutTopologyEveryProcessorIsACore) { EXPECT_EQ(cores({0, 1, 5}), 3); }

TEST_F(Host, QuotaOfVersion2IsTheSmallestOnTheWayUpRoundedUp) {
  write("proc/self/cgroup", "0::/outer/inner");
  write("sys/fs/cgroup/outer/inner/cpu.max", "max 100000");
  write("sys/fs/cgroup/outer/cpu.max", "250000 100000");
  write("sys/fs/cgroup/cpu.max", "700000 100000");
  EXPECT_EQ(cores({0, 1, 2, 3, 4, 5, 6, 7}), 3);
  EXPECT_EQ(cores({0, 1}), 2);
  write("sys/fs/cgroup/outer/inner/cpu.max", "5000 100000");
  EXPECT_EQ(cores({0, 1}), 1);
}

TEST_F(Host, QuotaOfVersion1) {
  write("proc/self/cgroup", "7:memory:/job\n4:cpu,cpuacct:/job");
  write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "200000");
  write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cores({0, 1, 2, 3}), 2);
  write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(cores({0, 1, 2, 3}), 4);
}

TEST_F(Host, DamagedFilesAreIgnored) {
  write("proc/self/cgroup", "nonsense\n0:");
  write("sys/fs/cgroup/cpu.max", "0 0");
  EXPECT_EQ(cores({0, 1}), 2);
  write("sys/fs/cgroup/cpu.max", "12");
  EXPECT_EQ(cores({0, 1}), 2);
  EXPECT_EQ(cores({}), 1);
}

TEST_F(Host, MemoryIsTheMachinesOrTheGroups) {
  write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 600 kB\nSwapFree: 50 kB");
  EXPECT_EQ(host::memory(root_.path()).total, 1000u << 10);
  EXPECT_EQ(host::memory(root_.path()).available, 650u << 10);
  write("proc/self/cgroup", "0::/job");
  write("sys/fs/cgroup/job/memory.max", std::to_string(400 << 10));
  write("sys/fs/cgroup/job/memory.current", std::to_string(300 << 10));
  write("sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file " + std::to_string(200 << 10));
  EXPECT_EQ(host::memory(root_.path()).total, 400u << 10);
  EXPECT_EQ(host::memory(root_.path()).available, 300u << 10);  // 400 - (300 - 200 of cache)
  write("sys/fs/cgroup/job/memory.max", "max");
  EXPECT_EQ(host::memory(root_.path()).total, 1000u << 10);
}

TEST_F(Host, NamesAndFeatures) {
  write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU 9000\nflags\t\t: fpu avx2 fma avx512f amx_bf16 avx");
  EXPECT_EQ(host::cpu_name(root_.path()), "Some CPU 9000");
  EXPECT_EQ(host::cpu_features(root_.path()), "AVX AVX2 FMA AVX512F AMX_BF16");
}

TEST(ThisHost, HasAtLeastOneProcessorAndMemory) {
  EXPECT_FALSE(host::allowed_cpus().empty());
  EXPECT_GE(host::physical_cores(host::allowed_cpus()), 1);
  EXPECT_GT(host::memory().total, 0u);
}

}  // namespace
}  // namespace danqing
