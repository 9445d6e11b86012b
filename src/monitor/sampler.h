// Readings one after the other: what only the difference of two of them tells, and the energy of a stretch of time.
#pragma once
#include <condition_variable>
#include <mutex>
#include <thread>

#include "monitor/reading.h"

namespace danqing::monitor {

struct Snapshot {
  double time = 0;  ///< seconds since 1970
  HostReading host;
  std::vector<CardReading> cards;
};
Json to_json(const Snapshot& s);

/// Fills HostReading::cpu_load, and CardReading::throttled where a card only counts. One thread at a time.
class Sampler {
 public:
  explicit Sampler(Options options = {}) : options_(std::move(options)) {}
  Snapshot sample();
  const Options& options() const { return options_; }

 private:
  Options options_;
  Snapshot last_;
};

/// What a card used between the start and stop(): the difference of its own counter, or its power over time, read five
/// times a second, where it has none.
class EnergyMeter {
 public:
  /// `card`: an id or a PCI address; nothing is measured for one that is not there.
  EnergyMeter(Options options, std::string card);
  ~EnergyMeter() { (void)stop(); }
  struct Result {
    double joules = 0;
    bool counted = false;  ///< by the card; else power over time
  };
  /// Nothing where the card reports neither. Once.
  std::optional<Result> stop();

 private:
  std::optional<CardReading> read() const;
  void watch();
  Options options_;
  std::string card_;
  std::optional<double> first_joules_;
  double joules_ = 0, last_watts_ = 0, last_time_ = 0;
  bool integrating_ = false, stopping_ = false;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace danqing::monitor
