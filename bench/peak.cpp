// danqing_peak: the machine's own limits, to state every speed as a share of them. Registers, our tiles, oneDNN's
// products, memory. Each figure is the best of many short tries, so that a busy machine is measured too.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>
#include <vector>

#include "base/json.h"
#include "bench/measure.h"
#include "device/device.h"
#include "device/kernels/micro.h"
#include "device/kernels/onednn.h"
#include "device/kernels/pool.h"
#include "peak_registers.h"

namespace danqing::peak {
namespace {

struct Row {
  std::string what, type;
  double per_second;  ///< operations or bytes
  bool bytes = false;
};

double best_seconds(int tries, const std::function<void()>& run) {
  double best = std::numeric_limits<double>::max();
  for (int i = 0; i <= tries; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (i > 0) best = std::min(best, seconds);
  }
  return best;
}

/// The same work on every thread at once.
double on_all(kernels::Pool& pool, int tries, const std::function<void(int worker)>& work) {
  return best_seconds(tries,
                      [&] { pool.run(pool.threads(), [&](int64_t task, int) { work(static_cast<int>(task)); }); });
}

void registers(kernels::Pool& pool, std::vector<Row>& rows) {
  constexpr int64_t kIterations = 1'000'000;  // some milliseconds
  for (const RegisterLoop& loop : register_loops()) {
    const double s = on_all(pool, 30, [&](int) { loop.run(kIterations); });
    rows.push_back({fmt::format("registers ({})", loop.instruction), loop.name,
                    loop.operations * kIterations * pool.threads() / s});
  }
}

/// Tiles over packed strips in the first-level cache.
void tiles(kernels::Pool& pool, std::vector<Row>& rows) {
  int count = 0;
  const kernels::MicroKernels* const* all = kernels::all_micro_kernels(&count);
  for (int i = 0; i < count; ++i) {
    const kernels::MicroKernels& m = *all[i];
    constexpr int64_t k = 256;
    constexpr int kTiles = 2000;
    struct alignas(64) Line {
      float values[16];
    };
    const size_t floats = static_cast<size_t>(k * (m.mr + m.nr) + m.mr * m.nr + 2 * (m.mr + m.nr));
    std::vector<std::vector<Line>> memory(static_cast<size_t>(pool.threads()), std::vector<Line>(floats / 16 + 8));
    const auto time = [&](const char* type, const std::function<void(float* a, float* b, float* c)>& tile) {
      const double s = on_all(pool, 20, [&](int worker) {
        float* b = memory[static_cast<size_t>(worker)][0].values;
        float* c = b + k * m.nr;
        float* a = c + m.mr * m.nr + 2 * m.nr;
        for (int t = 0; t < kTiles; ++t) tile(a, b, c);
      });
      rows.push_back({fmt::format("our tiles ({} {}x{})", m.name, m.mr, m.nr), type,
                      2.0 * static_cast<double>(k) * m.mr * m.nr * kTiles * pool.threads() / s});
    };
    if (m.f32) time("f32", [&](float* a, float* b, float* c) { m.f32(k, a, b, c, m.nr, false); });
    if (m.i16)
      time("i16", [&](float* a, float* b, float* c) {
        m.i16(k, reinterpret_cast<int16_t*>(a), a + k * m.mr / 2, reinterpret_cast<int16_t*>(b), b + k * m.nr / 2, c,
              m.nr, false);
      });
    if (m.i8)
      time("i8", [&](float* a, float* b, float* c) {
        m.i8(k, reinterpret_cast<uint8_t*>(a), reinterpret_cast<int8_t*>(b), reinterpret_cast<int32_t*>(c), m.nr,
             false);
      });
  }
}

void onednn(int threads, std::vector<Row>& rows) {
  using kernels::OnednnType;
  constexpr int64_t m = 1088, n = 4096, k = 4096;  // a layer's projection for 512x512 pixels and 64 text tokens
  for (const auto& [type, name] :
       {std::pair(OnednnType::f32, "f32"), {OnednnType::bf16, "bf16"}, {OnednnType::u8s8, "i8"}})
    if (const double s = kernels::onednn_seconds(type, m, n, k, threads, 6); s > 0)
      rows.push_back(
          {fmt::format("oneDNN {} product {}x{}x{}", kernels::onednn_text(), m, n, k), name, 2.0 * m * n * k / s});
}

void memory(kernels::Pool& pool, std::vector<Row>& rows) {
  constexpr size_t kWords = size_t{32} << 20;  // 256 MiB a side, past most caches
  std::vector<uint64_t> from(kWords, 1), to(kWords, 2);
  const size_t part = kWords / static_cast<size_t>(pool.threads());
  std::vector<uint64_t> sums(static_cast<size_t>(pool.threads()) * 8);
  const double read = on_all(pool, 8, [&](int worker) {
    const uint64_t* p = from.data() + static_cast<size_t>(worker) * part;
    uint64_t a = 0, b = 0, c = 0, d = 0;  // one word of each cache line
    for (size_t i = 0; i + 32 <= part; i += 32) a += p[i], b += p[i + 8], c += p[i + 16], d += p[i + 24];
    sums[static_cast<size_t>(worker) * 8] += a + b + c + d;
  });
  const double copy = on_all(pool, 8, [&](int worker) {
    const size_t at = static_cast<size_t>(worker) * part;
    std::memcpy(to.data() + at, from.data() + at, part * sizeof(uint64_t));
  });
  const auto bytes = static_cast<double>(part * sizeof(uint64_t)) * pool.threads();
  rows.push_back({"memory read (256 MiB)", "read", bytes / read, true});
  rows.push_back({"memory copied (256 MiB to 256 MiB)", "copy", bytes / copy, true});
}

int main(int argc, char** argv) {
  CLI::App app("The machine's peaks: registers, our tiles, oneDNN's products, memory");
  int threads = 0;
  bool json = false;
  app.add_option("--threads", threads, "Threads (default: the physical cores that this process may use)")
      ->check(CLI::Range(0, 512));
  app.add_flag("--json", json, "Print JSON");
  CLI11_PARSE(app, argc, argv);
  const auto device = Device::open("cpu", {.threads = threads});
  if (!device) {
    std::fprintf(stderr, "%s\n", device.error().message.c_str());
    return 1;
  }
  threads = (*device)->threads();
  kernels::Pool pool(threads);
  std::vector<Row> rows;
  registers(pool, rows);
  tiles(pool, rows);
  onednn(threads, rows);
  memory(pool, rows);
  if (json) {
    Json j{{"processor", app::processor_name()}, {"cpu_features", cpu_features()},       {"threads", threads},
           {"onednn", kernels::onednn_text()},   {"kernels", (*device)->kernels_text()}, {"peaks", Json::array()}};
    for (const Row& r : rows)
      j["peaks"].push_back(
          {{"what", r.what}, {"type", r.type}, {r.bytes ? "bytes_per_second" : "operations_per_second", r.per_second}});
    std::puts(dump_json(j, 2).c_str());
    return 0;
  }
  std::printf("%s, %d threads, oneDNN %s\n", app::processor_name().c_str(), threads, kernels::onednn_text().c_str());
  for (const Row& r : rows)
    std::printf("%-56s %-5s %9.1f %s\n", r.what.c_str(), r.type.c_str(), r.per_second * 1e-9,
                r.bytes ? "GB/s" : "GFLOP/s");
  return 0;
}

}  // namespace
}  // namespace danqing::peak

int main(int argc, char** argv) { return danqing::peak::main(argc, argv); }
