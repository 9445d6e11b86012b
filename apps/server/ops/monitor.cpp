#include "server/ops/monitor.h"

#include <algorithm>

namespace danqing::server {
namespace {

constexpr size_t kSamples = 1800;

template <class T>
Json known(const std::optional<T>& v) {
  return v ? Json(*v) : Json();
}

/// The few numbers that a chart of every card needs; the whole reading is in /metrics and `danqing monitor`.
Json card_json(const monitor::CardReading& c) {
  return {{"id", c.id},
          {"name", c.name},
          {"temperature", known(c.junction_celsius ? c.junction_celsius : c.edge_celsius)},
          {"load", known(c.load)},
          {"memory_used", known(c.vram_used)},
          {"memory_total", known(c.vram_total)},
          {"power", known(c.power_watts)},
          {"throttled", known(c.throttled)}};
}

}  // namespace

void Monitor::reset(monitor::Options options, std::string device) {
  const std::lock_guard lock(mutex_);
  sampler_ = monitor::Sampler(std::move(options));
  device_ = std::move(device);
  samples_.clear();
}

void Monitor::sample() {
  const std::lock_guard lock(mutex_);
  samples_.push_back(sampler_.sample());
  if (samples_.size() > kSamples) samples_.pop_front();
}

monitor::Snapshot Monitor::last() const {
  const std::lock_guard lock(mutex_);
  return samples_.empty() ? monitor::Snapshot{} : samples_.back();
}

monitor::CardReading Monitor::card() const {
  const std::lock_guard lock(mutex_);
  const monitor::CardReading* own = samples_.empty() ? nullptr : own_card(samples_.back());
  return own ? *own : monitor::CardReading{};
}

const monitor::CardReading* Monitor::own_card(const monitor::Snapshot& s) const {
  for (const auto& c : s.cards)
    if (!device_.empty() && c.pci == device_) return &c;
  return s.cards.empty() ? nullptr : &s.cards.front();
}

Json Monitor::series(double since) const {
  Json out = Json::array();
  const std::lock_guard lock(mutex_);
  for (const monitor::Snapshot& s : samples_) {
    if (s.time <= since) continue;
    static const monitor::CardReading none;
    const monitor::CardReading* own = own_card(s);
    const monitor::CardReading& c = own ? *own : none;
    const uint64_t total = s.host.memory_total.value_or(0);
    Json j{{"time", s.time},
           {"temperature", known(c.junction_celsius ? c.junction_celsius : c.edge_celsius)},
           {"load", known(c.load)},
           {"memory_used", known(c.vram_used)},
           {"memory_total", known(c.vram_total)},
           {"power", known(c.power_watts)},
           {"host_used", total - std::min(total, s.host.memory_available.value_or(total))},
           {"host_total", total},
           {"process", s.host.process_resident.value_or(0)},
           {"cpu_load", known(s.host.cpu_load)},
           {"cards", Json::array()}};
    for (const auto& card : s.cards) j["cards"].push_back(card_json(card));
    out.push_back(std::move(j));
  }
  return out;
}

}  // namespace danqing::server
