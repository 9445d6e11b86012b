#include "server/jobs/queue.h"

#include <algorithm>

namespace danqing::server {

void FairQueue::push(QueueEntry entry) {
  auto lane = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& l) { return l.key == entry.key; });
  if (lane == lanes_.end()) lane = lanes_.insert(lanes_.end(), Lane{entry.key, {}});
  const auto before = [](const QueueEntry& a, const QueueEntry& b) {
    return a.priority != b.priority ? a.priority > b.priority : a.seq < b.seq;
  };
  auto& list = lane->entries;
  list.insert(std::upper_bound(list.begin(), list.end(), entry, before), std::move(entry));
}

bool FairQueue::remove(const std::string& id) {
  for (auto lane = lanes_.begin(); lane != lanes_.end(); ++lane)
    for (auto e = lane->entries.begin(); e != lane->entries.end(); ++e)
      if (e->id == id) {
        lane->entries.erase(e);
        if (lane->entries.empty()) lanes_.erase(lane);
        return true;
      }
  return false;
}

size_t FairQueue::size() const {
  size_t n = 0;
  for (const Lane& l : lanes_) n += l.entries.size();
  return n;
}

size_t FairQueue::size_of(const std::string& key) const {
  for (const Lane& l : lanes_)
    if (l.key == key) return l.entries.size();
  return 0;
}

bool FairQueue::pop(const std::function<bool(const QueueEntry&)>& ready, QueueEntry& out) {
  for (auto lane = lanes_.begin(); lane != lanes_.end(); ++lane)
    for (auto e = lane->entries.begin(); e != lane->entries.end(); ++e)
      if (ready(*e)) {
        out = std::move(*e);
        lane->entries.erase(e);
        if (lane->entries.empty())
          lanes_.erase(lane);
        else
          lanes_.splice(lanes_.end(), lanes_, lane);  // this key had its turn
        return true;
      }
  return false;
}

std::vector<QueueEntry> FairQueue::order() const {
  std::vector<QueueEntry> out;
  for (size_t round = 0, found = 1; found; ++round) {
    found = 0;
    for (const Lane& l : lanes_)
      if (round < l.entries.size()) {
        out.push_back(l.entries[round]);
        ++found;
      }
  }
  return out;
}

}  // namespace danqing::server
