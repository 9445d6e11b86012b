// The rows of a verification and how they are shown.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "verify/golden.h"
#include "verify/tolerance.h"

namespace danqing::app::verify {

enum class Status { passed, failed, not_run };

struct Row {
  std::string stage, name;
  Status status = Status::not_run;
  bool measured = false;  ///< the next two hold numbers
  double max_abs = 0, rel_l2 = 0;
  double badness = 0;  ///< measure / limit of the worst comparison so far
  std::string tolerance, rule;
  std::string note;  ///< why it failed or was not run
  int values = 0;    ///< golden tensors (or entries) behind this row
};

struct Report {
  std::string tree, device, rules;
  std::vector<Row> rows;
  std::vector<std::shared_ptr<Golden>> goldens;
  int cases_not_selected = 0;
  double seconds = 0;

  int count(Status s) const;
  /// Stage, case, max abs, relative L2, tolerance, pass; then the failures again with their reasons, and the counts.
  std::string table() const;
  Json json() const;
};

}  // namespace danqing::app::verify
