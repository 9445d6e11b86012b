// Threads that share the tasks of one operation. A thread without work waits a moment actively, then sleeps: a busy
// machine loses nothing to it, and a thread that the system does not run in time holds up nobody (the others take its
// tasks). Which thread does which task is left to chance; results must depend on the task alone.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace danqing::kernels {

class Pool {
 public:
  /// `cpus` (optional): the processors that thread i may run on is cpus[i % size]; the caller's thread is left alone.
  explicit Pool(int threads, const std::vector<std::vector<int>>& cpus = {});
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return threads_; }
  /// f(task, worker) for every task from 0 to n-1, worker from 0 to threads()-1 (the caller is worker 0). Returns when
  /// all are done. Not reentrant; one run at a time. f must not throw.
  void run(int64_t n, const std::function<void(int64_t task, int worker)>& f);

 private:
  struct Shared;
  void work(int worker);
  int threads_;
  std::unique_ptr<Shared> shared_;
};

}  // namespace danqing::kernels
