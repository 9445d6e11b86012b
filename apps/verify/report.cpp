#include "verify/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace danqing::app::verify {
namespace {

std::string_view text(Status s) { return s == Status::passed ? "pass" : s == Status::failed ? "FAIL" : "not run"; }

std::string figure(const Row& r, double v) { return r.measured ? fmt::format("{:.2e}", v) : "-"; }

/// Number of values by mark over all goldens.
std::array<int, kMarkCount> tally(const std::vector<std::shared_ptr<Golden>>& goldens) {
  std::array<int, kMarkCount> n{};
  for (const auto& g : goldens)
    for (const auto& [key, mark] : g->marks()) ++n[static_cast<size_t>(mark)];
  return n;
}

Json tally_json(const std::array<int, kMarkCount>& n) {
  const auto at = [&](Mark m) { return n[static_cast<size_t>(m)]; };
  return {{"compared", at(Mark::compared)},
          {"inputs", at(Mark::input)},
          {"failed", at(Mark::failed)},
          {"not_run", at(Mark::not_run)},
          {"not_selected", at(Mark::not_selected)}};
}

/// JSON has no NaN; a value that is none stays readable.
Json number(double v) { return std::isfinite(v) ? Json(v) : Json(fmt::format("{}", v)); }

}  // namespace

int Report::count(Status s) const {
  return static_cast<int>(std::count_if(rows.begin(), rows.end(), [s](const Row& r) { return r.status == s; }));
}

std::string Report::table() const {
  size_t stage = 5, name = 4, tolerance = 9;
  for (const Row& r : rows) {
    stage = std::max(stage, r.stage.size());
    name = std::max(name, r.name.size());
    tolerance = std::max(tolerance, r.tolerance.size());
  }
  std::string out = fmt::format("{}\ndevice: {}\nrules: {}\n\n", tree, device, rules);
  const auto line = [&](std::string_view a, std::string_view b, std::string_view c, std::string_view d,
                        std::string_view e, std::string_view f) {
    out += fmt::format("{:<{}}  {:<{}}  {:>9}  {:>11}  {:<{}}  {}\n", a, stage, b, name, c, d, e, tolerance, f);
  };
  line("stage", "case", "max abs", "relative L2", "tolerance", "pass");
  for (const Row& r : rows) {
    std::string verdict(text(r.status));
    if (r.status != Status::passed && !r.note.empty()) verdict += ": " + r.note;
    line(r.stage, r.name, figure(r, r.max_abs), figure(r, r.rel_l2), r.tolerance.empty() ? "-" : r.tolerance, verdict);
  }
  if (count(Status::failed)) {
    out += "\nFailed:\n";
    for (const Row& r : rows)
      if (r.status == Status::failed)
        out += fmt::format("  {} {}: {}\n", r.stage, r.name,
                           r.note.empty() ? fmt::format("relative L2 {:.2e}, max abs {:.2e}, tolerance {} ({})",
                                                        r.rel_l2, r.max_abs, r.tolerance, r.rule)
                                          : r.note);
  }
  const auto n = tally(goldens);
  const auto at = [&](Mark m) { return n[static_cast<size_t>(m)]; };
  out += fmt::format("\n{} passed, {} failed, {} not run", count(Status::passed), count(Status::failed),
                     count(Status::not_run));
  if (cases_not_selected) out += fmt::format(", {} cases not selected", cases_not_selected);
  out += fmt::format("; {} golden files: {} values compared, {} used as inputs, {} failed, {} not run", goldens.size(),
                     at(Mark::compared), at(Mark::input), at(Mark::failed), at(Mark::not_run));
  if (at(Mark::not_selected)) out += fmt::format(", {} not selected", at(Mark::not_selected));
  return out + fmt::format("; {:.1f} s\n", seconds);
}

Json Report::json() const {
  Json j{{"tree", tree},
         {"device", device},
         {"rules", rules},
         {"seconds", seconds},
         {"passed", count(Status::passed)},
         {"failed", count(Status::failed)},
         {"not_run", count(Status::not_run)},
         {"cases_not_selected", cases_not_selected},
         {"values", tally_json(tally(goldens))}};
  Json list = Json::array();
  for (const Row& r : rows) {
    Json row{{"stage", r.stage}, {"case", r.name}, {"status", text(r.status)}, {"values", r.values}};
    if (r.measured) row["max_abs"] = number(r.max_abs), row["rel_l2"] = number(r.rel_l2);
    if (!r.tolerance.empty()) row["tolerance"] = r.tolerance, row["rule"] = r.rule;
    if (!r.note.empty()) row["note"] = r.note;
    list.push_back(std::move(row));
  }
  j["rows"] = std::move(list);
  Json files = Json::array();
  for (const auto& g : goldens) {
    Json f = tally_json(tally({g}));
    f["file"] = g->label();
    f["count"] = g->marks().size();
    files.push_back(std::move(f));
  }
  j["files"] = std::move(files);
  return j;
}

}  // namespace danqing::app::verify
