// Who is next: round robin over the API keys, each key's jobs by priority and age. Pure logic, no threads.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <string>
#include <vector>

namespace danqing::server {

struct QueueEntry {
  std::string id, key;
  int priority = 0;
  int64_t seq = 0;  ///< older is smaller
};

class FairQueue {
 public:
  void push(QueueEntry entry);
  bool remove(const std::string& id);
  size_t size() const;
  size_t size_of(const std::string& key) const;
  /// Takes the next entry for which `ready` holds; false if there is none.
  bool pop(const std::function<bool(const QueueEntry&)>& ready, QueueEntry& out);
  /// The order in which pop would hand them out.
  std::vector<QueueEntry> order() const;

 private:
  struct Lane {
    std::string key;
    std::deque<QueueEntry> entries;  // best first
  };
  std::list<Lane> lanes_;  // the first is next
};

}  // namespace danqing::server
