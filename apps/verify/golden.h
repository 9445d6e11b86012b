// One file of reference values, with an account of what became of each value in it: nothing may be left out silently.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/tensor.h"
#include "checkpoint/tensor_source.h"

namespace danqing::app::verify {

/// What became of one value. Later marks of higher rank win.
enum class Mark { none, not_selected, not_run, input, compared, failed };
inline constexpr int kMarkCount = 6;

class Golden {
 public:
  /// NAME.safetensors with NAME.json beside it. A missing or damaged file is kept as `error()`.
  static std::shared_ptr<Golden> open(const std::filesystem::path& stem, std::string label);
  /// A picture or JSON file: `entries` stand for its values.
  static std::shared_ptr<Golden> of_entries(std::string label, const std::vector<std::string>& entries);

  const std::string& label() const { return label_; }  ///< path within the tree
  const std::optional<Error>& error() const { return error_; }
  const Json& json() const { return json_; }  ///< the sidecar, an object (empty if there is none)
  bool has(const std::string& key) const { return marks_.contains(key); }
  std::vector<std::string> keys() const;
  /// X of every key `prefix X suffix`, sorted, without repetition; X is not empty.
  std::vector<std::string> names(std::string_view prefix, std::string_view suffix) const;
  std::vector<std::string> keys_with(std::string_view prefix) const;

  /// Both mark the value as used.
  Result<Tensor> tensor(const std::string& key);
  /// The same, with the number of axes that the code after it relies on.
  Result<Tensor> tensor(const std::string& key, size_t rank);
  Result<std::vector<int64_t>> integers(const std::string& key);
  std::optional<DType> dtype(const std::string& key) const;

  void mark(const std::string& key, Mark m);
  Mark mark_of(const std::string& key) const;
  const std::map<std::string, Mark>& marks() const { return marks_; }

 private:
  std::string label_;
  std::optional<Error> error_;
  std::shared_ptr<const TensorSource> source_;
  Json json_ = Json::object();
  std::map<std::string, Mark> marks_;
};

}  // namespace danqing::app::verify
