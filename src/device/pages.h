// Pages of memory: reading those of a mapped file in, giving them back, and addresses without memory. Linux does all of
// it; elsewhere as much as the system offers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "danqing/result.h"

namespace danqing::pages {

/// Makes the pages of a mapped file present. Error bad_input when the file has become shorter or cannot be read, which
/// would end the process at the first access otherwise (told apart on Linux >= 5.14). `what` names the tensor.
Result<void> bring(std::span<const std::byte> mapped, std::string_view what);

/// Gives the whole pages inside back: the next access reads the file again. Never for memory that is no mapped file.
void drop(std::span<const std::byte> mapped);

/// A range of addresses behind which there is nothing: what it costs is not memory. Access ends the process.
class AddressRange {
 public:
  explicit AddressRange(size_t bytes);
  ~AddressRange();
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;
  void* base() const { return base_; }  ///< at a page's beginning, never null

 private:
  void* base_ = nullptr;
  size_t reserved_ = 0;
};

}  // namespace danqing::pages
