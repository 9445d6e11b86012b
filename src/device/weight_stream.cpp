#include "device/weight_stream.h"

#include <algorithm>
#include <system_error>

#include "base/try.h"
#include "device/pages.h"
#include "device/placement.h"

namespace danqing {

namespace {

/// Sorts, and joins what lies so close that pages are shared.
void join(std::vector<std::span<const std::byte>>& ranges) {
  constexpr std::ptrdiff_t kClose = 4096;
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.data() < b.data(); });
  std::vector<std::span<const std::byte>> joined;
  for (const auto& r : ranges) {
    if (!joined.empty() && r.data() - (joined.back().data() + joined.back().size()) < kClose)
      joined.back() = {joined.back().data(), r.data() + r.size()};
    else
      joined.push_back(r);
  }
  ranges = std::move(joined);
}

}  // namespace

WeightStream::WeightStream(Device& device, std::shared_ptr<const TensorSource> source, int first)
    : PagedTensors(device), source_(std::move(source)), first_(first) {}

Result<std::unique_ptr<WeightStream>> WeightStream::create(Device& device, std::shared_ptr<const TensorSource> source,
                                                           std::vector<WeightItem> items, int first) {
  std::unique_ptr<WeightStream> s(new WeightStream(device, std::move(source), first));
  DQ_CHECK(s->lay_out(std::move(items)));
  return s;
}

Result<void> WeightStream::lay_out(std::vector<WeightItem> items) {
  uint64_t staging = 0;
  for (WeightItem& i : items) {
    group_of_[i.tensor] = i.group;
    groups_.resize(std::max(groups_.size(), static_cast<size_t>(i.group - first_ + 1)));
    staging = std::max(staging, i.conversion);
    Group& g = group(i.group);
    (i.mapped ? g.mapped : g.copied).push_back(std::move(i));
  }
  uint64_t mapped = 0;
  std::vector<uint64_t> sizes;
  std::vector<std::vector<ggml_tensor*>> tensors;
  std::vector<std::vector<Pack>> packs;
  for (Group& g : groups_) {
    uint64_t bytes = 0;
    for (const WeightItem& i : g.mapped) {
      bytes += i.bytes;
      g.ranges.push_back(source_->bytes(*i.stored));
    }
    mapped = std::max(mapped, bytes);
    join(g.ranges);
    tensors.emplace_back();
    for (const WeightItem& i : g.copied) tensors.back().push_back(i.tensor);
    packs.push_back(pack(device_, tensors.back()));
    sizes.resize(std::max(sizes.size(), packs.back().size()));
    for (size_t b = 0; b < packs.back().size(); ++b) sizes[b] = std::max(sizes[b], packs.back()[b].bytes);
  }
  DQ_TRY(mapped_charge_, device_.charge(2 * mapped, "weights of two layers"));
  for (Place& p : places_)
    for (uint64_t bytes : sizes) {
      DQ_TRY(Device::Buffer buffer, device_.allocate(bytes, "weights of two layers"));
      ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
      p.buffers.push_back(std::move(buffer));
    }
  if (device_.is_cpu()) {
    DQ_TRY(staging_charge_, device_.charge(staging, "conversion of weights"));
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    Place& place = places_[g % 2];
    for (size_t b = 0; b < packs[g].size(); ++b)
      DQ_CHECK(put(device_, place.buffers[b].get(), tensors[g], packs[g][b], "weights"));
    place.formed = static_cast<int>(g) + first_;  // each was initialised over the one before
    for (const WeightItem& i : groups_[g].mapped) {
      ggml_backend_buffer_t view = wrap_mapped(device_, *source_, i);
      if (!view) return fail(ErrorCode::does_not_fit, "[weights] expected memory for a tensor's name, got none");
      views_.push_back(view);
    }
  }
  return {};
}

WeightStream::~WeightStream() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  for (ggml_backend_buffer_t v : views_) unwrap_mapped(*source_, v);
}

int WeightStream::group_of(const ggml_tensor* t) const {
  const auto it = group_of_.find(t);
  return it == group_of_.end() ? kOther : it->second;
}

Result<void> WeightStream::acquire(int g) {
  std::unique_lock lock(mutex_);
  Place& p = place_of(g);
  for (;;) {
    if (p.holds == g) {  // so nothing else is being read there yet: a pass that was broken off may have asked for it
      p.wanted = -1;
      p.used = g;
      return {};
    }
    if (p.failed == g) {
      p.failed = -1;
      return *std::exchange(p.error, std::nullopt);
    }
    if (p.wanted == -1) {
      p.wanted = g;
      if (!start()) {
        serve(p, lock);
        continue;
      }
    }
    changed_.wait(lock);
  }
}

void WeightStream::release(int g) {
  const std::lock_guard lock(mutex_);
  place_of(g).used = -1;
}

void WeightStream::prefetch(int g) {
  const std::lock_guard lock(mutex_);
  Place& p = place_of(g);
  if (p.holds == g && p.used == -1) p.wanted = -1;
  if (p.holds == g || p.failed == g || p.wanted != -1 || p.used != -1) return;
  p.wanted = g;
  if (!start()) p.wanted = -1;
}

bool WeightStream::start() {
  try {
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  } catch (const std::system_error&) {
    return false;
  }
  changed_.notify_all();
  return true;
}

void WeightStream::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    Place* p = nullptr;
    changed_.wait(lock, [&] {
      for (Place& candidate : places_)
        if (candidate.wanted != -1) p = &candidate;
      return stop_ || p;
    });
    if (stop_) return;
    serve(*p, lock);
  }
}

void WeightStream::serve(Place& p, std::unique_lock<std::mutex>& lock) {
  const int g = p.wanted, before = std::exchange(p.holds, -1);
  lock.unlock();
  Result<void> filled;
  try {
    filled = fill_place(p, g, before);
  } catch (const std::exception& e) {
    filled = fail(ErrorCode::does_not_fit, "[weights] expected host memory to load a layer, got: {}", e.what());
  }
  lock.lock();
  p.wanted = p.failed = -1;
  if (filled) {
    p.holds = g;
  } else {
    if (source_->in_files())
      for (const auto& range : group(g).ranges) pages::drop(range);
    p.failed = g;
    p.error = filled.error();
  }
  changed_.notify_all();
}

bool WeightStream::same_layout(const Group& a, const Group& b) {
  return std::equal(a.copied.begin(), a.copied.end(), b.copied.begin(), b.copied.end(),
                    [](const WeightItem& x, const WeightItem& y) {
                      return x.tensor->data == y.tensor->data && x.tensor->type == y.tensor->type &&
                             ggml_are_same_shape(x.tensor, y.tensor);
                    });
}

Result<void> WeightStream::fill_place(Place& place, int g, int before) {
  const bool file = source_->in_files();
  if (before >= 0 && file)  // mapped ones: only the CPU has them
    for (const auto& range : group(before).ranges) pages::drop(range);
  Group& now = group(g);
  if (!same_layout(now, group(place.formed)))  // some backends keep the padding behind rows at zero
    for (const WeightItem& i : now.copied)
      if (ggml_backend_buffer_init_tensor(i.tensor->buffer, i.tensor) != GGML_STATUS_SUCCESS)
        return fail(ErrorCode::device_lost, "[weights] expected {} to take a layer, got an error from its driver",
                    device_.info().name);
  place.formed = g;
  const auto go_on = [this](double) -> Result<void> {
    const std::lock_guard lock(mutex_);
    if (stop_) return fail(ErrorCode::cancelled, "[weights] cancelled");
    return {};
  };
  for (const WeightItem& i : now.copied) DQ_CHECK(fill(device_, *source_, i, go_on));
  for (const WeightItem& i : now.mapped) {
    DQ_CHECK(go_on(0));
    if (file) DQ_CHECK(pages::bring(source_->bytes(*i.stored), i.name));
  }
  return {};
}

}  // namespace danqing
