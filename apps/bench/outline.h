// A model directory of published sizes without weights: sparse files that take no room, for plans on any machine.
#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "danqing/result.h"

namespace danqing::app {

/// Removed with the object.
class OutlineModel {
 public:
  /// `config` as load_configs takes it. The files hold bf16 headers of every component and the built-in model's
  /// tokenizer. Errors: usage (an unknown config), failed (no temporary directory).
  static Result<std::unique_ptr<OutlineModel>> create(const std::string& config);
  ~OutlineModel();
  const std::filesystem::path& path() const { return path_; }

 private:
  OutlineModel() = default;
  std::filesystem::path path_;
};

}  // namespace danqing::app
