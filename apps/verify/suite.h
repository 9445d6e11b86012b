// The list of cases, and running it.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "verify/checker.h"

namespace danqing::app::verify {

struct Options {
  std::filesystem::path tree, tokenizers;
  std::string device = "auto", only;
  CpuOptions cpu;
  bool f32 = true, bf16 = true;  ///< which goldens: those of f32 arithmetic, those of bf16
};

/// An error ends the case: a failed row, and its values count as failed.
using CaseFunction = std::function<Result<void>(Checker&)>;

class Suite {
 public:
  Suite(Options o, std::shared_ptr<Device> d)
      : options(std::move(o)), device(std::move(d)), factors(factors_for(device->is_cpu())) {}

  const Options options;
  const std::shared_ptr<Device> device;
  const DeviceFactors factors;

  /// Opened once; `stem` without its extension. A damaged file gives a failed row at once.
  std::shared_ptr<Golden> golden(const std::filesystem::path& stem);
  /// A picture or JSON file of the tree.
  std::shared_ptr<Golden> entries(const std::filesystem::path& file, const std::vector<std::string>& entries);
  bool seen(const std::filesystem::path& stem) const { return goldens_.contains(stem.string()); }

  /// `keys` of `golden` belong to the case: each is compared, used, or accounted for when the case fails.
  void add(const std::string& stage, const std::string& name, std::shared_ptr<Golden> golden,
           std::vector<std::string> keys, CaseFunction run);
  /// A row for what this build cannot run.
  void skip(const std::string& stage, const std::string& name, const std::shared_ptr<Golden>& golden,
            const std::vector<std::string>& keys, const std::string& why);
  void fail(const std::string& stage, const std::string& name, const std::string& why);
  /// A path as it is shown: within the tree.
  std::string label(const std::filesystem::path& path) const;

  bool empty() const { return cases_.empty() && report_.rows.empty(); }
  /// Runs the selected cases in order. `cancelled` is polled between them.
  Result<Report> run(const std::function<void(int done, int all, const std::string& what)>& progress,
                     const std::function<bool()>& cancelled);

 private:
  struct Case {
    std::string stage, name;
    std::shared_ptr<Golden> golden;
    std::vector<std::string> keys;
    CaseFunction run;  ///< empty: `row` is the result
    std::vector<Row> rows;
  };
  void run_case(Case& c);
  void account_for_leftovers();
  std::vector<Case> cases_;
  Report report_;
  std::map<std::string, std::shared_ptr<Golden>> goldens_;
};

/// Shell pattern with * and ?; a text without them matches anywhere.
bool matches(std::string_view pattern, std::string_view text);

/// Something large that several cases share: made when first asked for, freed with the last case that holds it.
template <class T>
class Lazy {
 public:
  explicit Lazy(std::function<Result<T>()> make) : make_(std::move(make)) {}
  Result<T*> get() {
    if (!value_) value_.emplace(make_());
    if (!*value_) return value_->error();
    return &**value_;
  }

 private:
  std::function<Result<T>()> make_;
  std::optional<Result<T>> value_;
};

}  // namespace danqing::app::verify
