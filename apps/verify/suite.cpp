#include "verify/suite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <exception>

#include "base/try.h"

namespace danqing::app::verify {

namespace fs = std::filesystem;

std::string Suite::label(const fs::path& path) const {
  std::error_code ec;
  const fs::path relative = fs::relative(path, options.tree, ec);
  return ec || relative.empty() ? path.string() : relative.string();
}

std::shared_ptr<Golden> Suite::golden(const fs::path& stem) {
  auto& g = goldens_[stem.string()];
  if (g) return g;
  g = Golden::open(stem, label(stem));
  report_.goldens.push_back(g);
  if (g->error()) fail(g->label(), "file", g->error()->message);
  return g;
}

std::shared_ptr<Golden> Suite::entries(const fs::path& file, const std::vector<std::string>& entries) {
  auto& g = goldens_[file.string()];
  if (g) return g;
  g = Golden::of_entries(label(file), entries);
  report_.goldens.push_back(g);
  return g;
}

void Suite::add(const std::string& stage, const std::string& name, std::shared_ptr<Golden> golden,
                std::vector<std::string> keys, CaseFunction run) {
  cases_.push_back({stage, name, std::move(golden), std::move(keys), std::move(run), {}});
}

void Suite::skip(const std::string& stage, const std::string& name, const std::shared_ptr<Golden>& golden,
                 const std::vector<std::string>& keys, const std::string& why) {
  if (golden)
    for (const std::string& k : keys) golden->mark(k, Mark::not_run);
  Row r;
  r.stage = stage, r.name = name, r.note = why;
  r.values = std::max(1, static_cast<int>(keys.size()));
  cases_.push_back({stage, name, golden, keys, nullptr, {std::move(r)}});
}

void Suite::fail(const std::string& stage, const std::string& name, const std::string& why) {
  Row r;
  r.stage = stage, r.name = name, r.note = why, r.status = Status::failed, r.values = 1;
  cases_.push_back({stage, name, nullptr, {}, nullptr, {std::move(r)}});
}

void Suite::run_case(Case& c) {
  Checker checker(c.stage);
  std::optional<Error> error;
  try {
    if (auto done = c.run(checker); !done) error = done.error();
  } catch (const std::exception& e) {  // out of memory in a case is a result, not the end of the table
    error = Error{ErrorCode::failed, e.what()};
  }
  if (error) checker.fail(c.name, error->message);
  if (c.golden) {
    std::vector<std::string> forgotten;
    for (const std::string& k : c.keys) {
      if (c.golden->mark_of(k) != Mark::none) continue;
      if (!error) forgotten.push_back(k);
      c.golden->mark(k, error ? Mark::failed : Mark::not_run);
    }
    if (!forgotten.empty()) checker.fail(c.name, fmt::format("not compared: {}", fmt::join(forgotten, ", ")));
  }
  c.rows = checker.take();
  c.run = nullptr;  // frees the models that only this case still held
}

void Suite::account_for_leftovers() {
  for (const auto& g : report_.goldens) {
    std::vector<std::string> left;
    for (const auto& [key, mark] : g->marks())
      if (mark == Mark::none) left.push_back(key);
    if (left.empty()) continue;
    for (const std::string& k : left) g->mark(k, Mark::not_run);
    const size_t shown = std::min<size_t>(left.size(), 3);
    Row r;
    r.stage = g->label(), r.name = "other values", r.values = static_cast<int>(left.size());
    r.note = fmt::format("no check for {} value{} in this build: {}{}", left.size(), left.size() == 1 ? "" : "s",
                         fmt::join(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                         left.size() > shown ? ", ..." : "");
    report_.rows.push_back(std::move(r));
  }
}

Result<Report> Suite::run(const std::function<void(int, int, const std::string&)>& progress,
                          const std::function<bool()>& cancelled) {
  const auto start = std::chrono::steady_clock::now();
  report_.tree = options.tree.string();
  report_.device =
      fmt::format("{} ({}), {} threads", device->info().name, device->info().description, device->threads());
  report_.rules = describe(factors);
  int done = 0;
  for (Case& c : cases_) {
    if (cancelled && cancelled())
      return danqing::fail(ErrorCode::cancelled, "[verify] stopped after {} of {} cases", done, cases_.size());
    const bool selected = options.only.empty() || matches(options.only, c.stage + " " + c.name);
    if (!selected) {
      ++report_.cases_not_selected;
      if (c.golden)
        for (const std::string& k : c.keys) c.golden->mark(k, Mark::not_selected);
      c.run = nullptr;
      continue;
    }
    if (progress) progress(done, static_cast<int>(cases_.size()), c.stage + " " + c.name);
    if (c.run) run_case(c);
    for (Row& r : c.rows) report_.rows.push_back(std::move(r));
    ++done;
  }
  account_for_leftovers();
  report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return std::move(report_);
}

bool matches(std::string_view pattern, std::string_view text) {
  if (pattern.find_first_of("*?") == std::string_view::npos) return text.find(pattern) != std::string_view::npos;
  size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || (pattern[p] == text[t] && pattern[p] != '*'))) {
      ++p, ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace danqing::app::verify
