#include "device/kernels/pool.h"

#include <atomic>
#include <thread>

#include "device/kernels/op.h"
#include "testing/testing.h"

namespace danqing::kernels {
namespace {

TEST(Pool, DoesEveryTaskOnce) {
  for (int threads : {1, 2, 3, 5}) {
    Pool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t n : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> done(static_cast<size_t>(n));
      std::atomic<bool> strange{false};
      pool.run(n, [&](int64_t task, int worker) {
        ++done[static_cast<size_t>(task)];
        if (worker < 0 || worker >= threads) strange = true;
      });
      for (const auto& d : done) ASSERT_EQ(d, 1);
      EXPECT_FALSE(strange);
    }
  }
}

TEST(Pool, ManyShortRunsAndPauses) {
  Pool pool(3);
  std::atomic<int64_t> sum{0};
  int64_t expected = 0;
  for (int run = 0; run < 20000; ++run) {
    const int64_t n = run % 7;
    pool.run(n, [&](int64_t task, int) { sum += task + 1; });
    expected += n * (n + 1) / 2;
    if (run % 4000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));  // threads fall asleep
  }
  EXPECT_EQ(sum, expected);
}

TEST(Pool, NoTwoTasksShareAWorker) {
  Pool pool(4);
  std::atomic<int> busy[4] = {};
  std::atomic<bool> clash{false};
  for (int run = 0; run < 200; ++run)
    pool.run(50, [&](int64_t, int worker) {
      if (busy[worker]++ != 0) clash = true;
      std::this_thread::yield();
      --busy[worker];
    });
  EXPECT_FALSE(clash);
}

TEST(ForRanges, CoversEverythingIndependentOfThreads) {
  for (int64_t n : {0, 1, 10, 11}) {
    std::vector<std::pair<int64_t, int64_t>> first;
    for (int threads : {1, 3}) {
      Pool pool(threads);
      std::vector<std::pair<int64_t, int64_t>> ranges(4, {-1, -1});
      for_ranges(pool, n, 5, [&](int64_t a, int64_t b, int) { ranges[static_cast<size_t>(a / 5)] = {a, b}; });
      if (threads == 1) first = ranges;
      EXPECT_EQ(ranges, first);
      int64_t covered = 0;
      for (auto [a, b] : ranges) covered += b - a;
      EXPECT_EQ(covered, n);
    }
  }
}

}  // namespace
}  // namespace danqing::kernels
