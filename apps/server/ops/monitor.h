// The cards and the host over time: what the page's monitor and /metrics show.
#pragma once
#include <deque>
#include <mutex>
#include <vector>

#include "monitor/sampler.h"

namespace danqing::server {

/// Thread-safe.
class Monitor {
 public:
  explicit Monitor(monitor::Options options = {}) : sampler_(std::move(options)) {}
  /// `device`: PCI address of the engine's card, empty for none.
  void reset(monitor::Options options, std::string device);
  void sample();  ///< once every two seconds; keeps an hour
  monitor::Snapshot last() const;
  /// The engine's card, or the first one where the backend does not say which it is; empty where there is none.
  monitor::CardReading card() const;
  /// One object a moment. Its "temperature", "load", "memory_used" and "memory_total" are the engine's card's (or those
  /// of the first card where the backend does not say which it is); "cards" has every card.
  Json series(double since) const;

 private:
  const monitor::CardReading* own_card(const monitor::Snapshot& s) const;
  mutable std::mutex mutex_;
  monitor::Sampler sampler_;
  std::string device_;
  std::deque<monitor::Snapshot> samples_;
};

/// The part of /metrics that the sample gives, in Prometheus' text form. Names end in the unit; cards have the labels
/// gpu (its id), name and gfx.
std::string monitor_metrics(const monitor::Snapshot& s);

}  // namespace danqing::server
