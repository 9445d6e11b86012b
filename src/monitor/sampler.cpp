#include "monitor/sampler.h"

#include <algorithm>
#include <chrono>

namespace danqing::monitor {
namespace {

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}
double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The reasons whose counters moved. Counters that went back belong to a driver that was loaded anew.
std::vector<std::string> moved(const ThrottleCounters& before, const ThrottleCounters& now) {
  std::vector<std::string> out;
  for (const auto& [reason, ticks] : now.held)
    for (const auto& [old_reason, old_ticks] : before.held)
      if (reason == old_reason && ticks > old_ticks) out.push_back(reason);
  return out;
}

}  // namespace

Json to_json(const Snapshot& s) {
  Json j{{"time", s.time}, {"host", to_json(s.host)}, {"cards", Json::array()}};
  for (const CardReading& c : s.cards) j["cards"].push_back(to_json(c));
  return j;
}

Snapshot Sampler::sample() {
  Snapshot s{wall_seconds(), read_host(options_), read_cards(options_)};
  const HostReading& before = last_.host;
  if (before.cpu_all_ticks > 0 && s.host.cpu_all_ticks > before.cpu_all_ticks)
    s.host.cpu_load = std::clamp(
        (s.host.cpu_busy_ticks - before.cpu_busy_ticks) / (s.host.cpu_all_ticks - before.cpu_all_ticks), 0.0, 1.0);
  for (CardReading& c : s.cards) {
    if (c.throttled || !c.throttle_counters) continue;
    for (const CardReading& old : last_.cards)
      if (old.id == c.id && old.throttle_counters) c.throttled = moved(*old.throttle_counters, *c.throttle_counters);
  }
  last_ = s;
  return s;
}

EnergyMeter::EnergyMeter(Options options, std::string card) : options_(std::move(options)), card_(std::move(card)) {
  const auto c = read();
  if (!c) return;
  if (c->energy_joules) {
    first_joules_ = c->energy_joules;
  } else if (c->power_watts) {
    integrating_ = true;
    last_watts_ = *c->power_watts;
    last_time_ = steady_seconds();
    thread_ = std::thread([this] { watch(); });
  }
}

std::optional<CardReading> EnergyMeter::read() const {
  if (card_.empty()) return {};
  for (CardReading& c : read_cards(options_))
    if (c.id == card_ || c.pci == card_) return std::move(c);
  return {};
}

void EnergyMeter::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    wake_.wait_for(lock, std::chrono::milliseconds(200), [&] { return stopping_; });
    const auto c = read();
    const double now = steady_seconds();
    const double watts = c ? c->power_watts.value_or(last_watts_) : last_watts_;
    joules_ += (last_watts_ + watts) / 2 * (now - last_time_);
    last_watts_ = watts;
    last_time_ = now;
  }
}

std::optional<EnergyMeter::Result> EnergyMeter::stop() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  if (integrating_) return Result{joules_, false};
  if (!first_joules_) return {};
  const auto c = read();
  if (!c || !c->energy_joules || *c->energy_joules < *first_joules_) return {};  // a driver that was loaded anew
  return Result{*c->energy_joules - *first_joules_, true};
}

}  // namespace danqing::monitor
