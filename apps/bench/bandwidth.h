// How fast bytes move: host memory by node, host and device, device, disk. What streaming weights lives on.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "device/device.h"

namespace danqing::app {

struct BandwidthRow {
  std::string id;               ///< "memcpy node 0", "host to device, pinned"
  std::string note;             ///< how it was measured, or why not
  double bytes_per_second = 0;  ///< 0: not measured
};

struct BandwidthOptions {
  size_t bytes = size_t{256} << 20;  ///< of one copy
  int repetitions = 3;
  std::filesystem::path file;  ///< for the disk; empty: none
  double pass_bytes = 0;       ///< weights that one pass streams; 0: not said
};

/// Tells each row as it is measured. Errors of a single measurement are in its note.
void measure_bandwidth(Device& device, const BandwidthOptions& o, const std::function<void(const BandwidthRow&)>& tell);

/// Copying memory on the processors of one node (of all: empty), in bytes copied a second.
double memcpy_bandwidth(const std::vector<int>& cpus, size_t bytes, int repetitions);
/// Reading a file past the page cache: O_DIRECT, or after dropping its pages where the file system has no O_DIRECT;
/// the note says which. Reads at most `most` bytes.
Result<BandwidthRow> disk_bandwidth(const std::filesystem::path& file, size_t most);

/// One sentence: what a pass takes when its weights are streamed over the slowest way between where they lie and where
/// they are used.
std::string streaming_sentence(const std::vector<BandwidthRow>& rows, double pass_bytes);
Json to_json(const BandwidthRow& row);

}  // namespace danqing::app
