#include "bench/bandwidth.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "base/text.h"
#include "base/try.h"
#include "base/units.h"
#include "device/host.h"
#include "device/numa.h"
#include "device/transfer.h"

namespace danqing::app {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

void run_on(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int c : cpus)
    if (c < CPU_SETSIZE) CPU_SET(c, &set);
  if (!cpus.empty()) sched_setaffinity(0, sizeof set, &set);
}

struct FreeMemory {
  void operator()(void* p) const { std::free(p); }
};

}  // namespace

double memcpy_bandwidth(const std::vector<int>& cpus, size_t bytes, int repetitions) {
  const std::vector<int> all = cpus.empty() ? host::allowed_cpus() : cpus;
  const size_t threads = static_cast<size_t>(std::max(1, host::physical_cores(all)));
  const size_t part = std::max<size_t>(4096, bytes / threads);
  double best = 0;
  // Each thread owns its memory, so that it lies on its node; it is touched before the time runs.
  struct Share {
    std::unique_ptr<std::byte[]> from, to;
  };
  std::vector<Share> shares(threads);
  const auto on_all = [&](const auto& work) {
    std::vector<std::thread> pool;
    for (size_t i = 0; i < threads; ++i)
      pool.emplace_back([&, i] {
        run_on(all);
        work(shares[i]);
      });
    for (std::thread& t : pool) t.join();
  };
  on_all([&](Share& s) {
    s.from.reset(new std::byte[part]);
    s.to.reset(new std::byte[part]);
    std::memset(s.from.get(), 1, part);
    std::memset(s.to.get(), 2, part);
  });
  for (int r = 0; r <= repetitions; ++r) {  // the first one warms up
    const auto begin = Clock::now();
    on_all([&](Share& s) { std::memcpy(s.to.get(), s.from.get(), part); });
    const double rate = static_cast<double>(part * threads) / seconds_since(begin);
    if (r > 0) best = std::max(best, rate);
  }
  // What was copied must be used, or a compiler may leave the copy out.
  for (const Share& s : shares)
    if (s.to[part / 2] != std::byte{1}) return 0;
  return best;
}

Result<BandwidthRow> disk_bandwidth(const std::filesystem::path& file, size_t most) {
  constexpr size_t kBlock = size_t{8} << 20, kAlignment = 4096;
  BandwidthRow row{"disk read", "O_DIRECT"};
  int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (fd < 0 && errno == EINVAL) {
    fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    row.note = "page cache dropped before";
    if (fd >= 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) row.note = "page cache not dropped";
  }
  if (fd < 0)
    return bad_input("[bandwidth] expected to read {}, got: {}", one_line(file.string(), 200), std::strerror(errno));
  const std::unique_ptr<void, FreeMemory> block(std::aligned_alloc(kAlignment, kBlock));
  uint64_t done = 0;
  const auto begin = Clock::now();
  ssize_t n = 1;
  while (block && done < most && (n = ::read(fd, block.get(), kBlock)) > 0) done += static_cast<uint64_t>(n);
  const double seconds = seconds_since(begin);
  const int error = errno;
  ::close(fd);
  if (n < 0)
    return bad_input("[bandwidth] expected to read {}, got: {}", one_line(file.string(), 200), std::strerror(error));
  if (done == 0)
    return bad_input("[bandwidth] expected a file with something in it, got {} with nothing",
                     one_line(file.string(), 200));
  row.bytes_per_second = static_cast<double>(done) / std::max(seconds, 1e-9);
  row.note += fmt::format(", {} of {}", format_bytes(done), one_line(file.filename().string(), 80));
  return row;
}

void measure_bandwidth(Device& device, const BandwidthOptions& o,
                       const std::function<void(const BandwidthRow&)>& tell) {
  const auto nodes = host::numa_nodes(host::allowed_cpus());
  for (size_t i = 0; i < nodes.size(); ++i)
    tell({nodes.size() == 1 ? "memcpy" : fmt::format("memcpy node {}", i),
          fmt::format("{} threads, bytes copied", host::physical_cores(nodes[i])),
          memcpy_bandwidth(nodes[i], o.bytes, o.repetitions)});
  if (!device.is_cpu()) {
    const std::pair<Transfer, const char*> ways[] = {{Transfer::to_device, "host to device, pageable"},
                                                     {Transfer::to_device_pinned, "host to device, pinned"},
                                                     {Transfer::from_device, "device to host, pageable"},
                                                     {Transfer::from_device_pinned, "device to host, pinned"},
                                                     {Transfer::on_device, "device copy"}};
    for (const auto& [kind, id] : ways) {
      const auto seconds = transfer_seconds(device, kind, o.bytes, o.repetitions);
      if (seconds)
        tell({id, format_bytes(o.bytes) + " at a time", static_cast<double>(o.bytes) / *seconds});
      else
        tell({id, seconds.error().message, 0});
    }
  }
  if (!o.file.empty()) {
    const auto row = disk_bandwidth(o.file, size_t{4} << 30);
    tell(row ? *row : BandwidthRow{"disk read", row.error().message, 0});
  }
}

std::string streaming_sentence(const std::vector<BandwidthRow>& rows, double pass_bytes) {
  const auto rate = [&](const char* id) {
    double best = 0;
    for (const BandwidthRow& r : rows)
      if (r.id.rfind(id, 0) == 0) best = std::max(best, r.bytes_per_second);
    return best;
  };
  const double link = rate("host to device"), disk = rate("disk read"), host = rate("memcpy");
  const double bytes = pass_bytes > 0 ? pass_bytes : 1e9;
  const std::string what = pass_bytes > 0
                               ? fmt::format("{} of weights a pass", format_bytes(static_cast<uint64_t>(pass_bytes)))
                               : "each GB of weights";
  std::string out;
  const auto add = [&](const char* from, double per_second) {
    if (per_second > 0) out += fmt::format("{}{:.3f} s {}", out.empty() ? "" : ", ", bytes / per_second, from);
  };
  if (link > 0)
    add("when it is streamed from host memory to the card", link);
  else
    add("when it is copied once in host memory", host);
  add("when it comes from this disk", disk);
  return out.empty() ? "" : fmt::format("Streaming: {} takes {}.", what, out);
}

Json to_json(const BandwidthRow& r) {
  return {
      {"id", r.id}, {"note", r.note}, {"bytes_per_second", r.bytes_per_second > 0 ? Json(r.bytes_per_second) : Json()}};
}

}  // namespace danqing::app
