#include "device/kernels/pool.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace danqing::kernels {
namespace {

/// About 50 microseconds: longer than the gap between two operations of a graph, shorter than a time slice.
constexpr int kSpins = 1500;

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

void pin(std::thread& thread, const std::vector<int>& cpus) {
#if defined(__linux__)
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : cpus)
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
#else
  (void)thread, (void)cpus;
#endif
}

}  // namespace

struct Pool::Shared {
  // A job is open while `state` is odd. A worker that found it open and has counted itself in `active` may touch it:
  // the caller closes it and then waits until nobody is active.
  std::atomic<uint64_t> state{0};
  std::atomic<int> active{0};
  std::atomic<int64_t> next{0};
  int64_t tasks = 0;
  const std::function<void(int64_t, int)>* job = nullptr;
  std::atomic<bool> stop{false};
  std::atomic<int> sleeping{0};
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<std::thread> threads;

  void take(int worker) {
    for (int64_t i = next.fetch_add(1); i < tasks; i = next.fetch_add(1)) (*job)(i, worker);
  }
};

Pool::Pool(int threads, const std::vector<std::vector<int>>& cpus)
    : threads_(threads < 1 ? 1 : threads), shared_(std::make_unique<Shared>()) {
  for (int i = 1; i < threads_; ++i) {
    try {
      shared_->threads.emplace_back([this, i] { work(i); });
    } catch (const std::system_error&) {  // the system gives no more threads: the ones there do the work
      break;
    }
    if (!cpus.empty()) pin(shared_->threads.back(), cpus[static_cast<size_t>(i) % cpus.size()]);
  }
}

Pool::~Pool() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stop = true;
  }
  shared_->wake.notify_all();
  for (std::thread& t : shared_->threads) t.join();
}

void Pool::work(int worker) {
  Shared& s = *shared_;
  uint64_t seen = 0;  // the last job that this thread took part in
  int spins = 0;
  while (!s.stop) {
    const uint64_t state = s.state;
    if (state % 2 == 0 || state == seen) {
      if (++spins < kSpins) {
        relax();
        continue;
      }
      std::unique_lock lock(s.mutex);
      ++s.sleeping;
      s.wake.wait(lock, [&] { return s.stop || (s.state % 2 == 1 && s.state != seen); });
      --s.sleeping;
      spins = 0;
      continue;
    }
    ++s.active;
    if (s.state == state) {  // still the same open job; otherwise the caller may not wait for this thread
      s.take(worker);
      seen = state;
    }
    --s.active;
    spins = 0;
  }
}

void Pool::run(int64_t n, const std::function<void(int64_t, int)>& f) {
  Shared& s = *shared_;
  if (n <= 1 || s.threads.empty()) {
    for (int64_t i = 0; i < n; ++i) f(i, 0);
    return;
  }
  s.tasks = n;
  s.job = &f;
  s.next = 0;
  ++s.state;  // opens
  if (s.sleeping > 0) {
    { const std::lock_guard lock(s.mutex); }  // a thread between its check and its sleep hears the call too
    s.wake.notify_all();
  }
  s.take(0);
  ++s.state;  // closes
  for (int spins = 0; s.active != 0; ++spins)
    if (spins < kSpins)
      relax();
    else
      std::this_thread::yield();  // the system took a thread's processor in the middle of a task
}

}  // namespace danqing::kernels
