#include "doctor/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace danqing::doctor {
namespace {

const char* word(Status s, Language l) {
  const bool zh = l == Language::chinese;
  switch (s) {
    case Status::ok: return zh ? "正常" : "ok";
    case Status::warning: return zh ? "注意" : "warning";
    case Status::failed: return zh ? "失败" : "FAILED";
    case Status::skipped: return zh ? "跳过" : "-";
  }
  return "";
}

Json pair(const Text& t) { return {{"en", t.en}, {"zh", t.zh}}; }

}  // namespace

std::string report_text(const std::vector<Check>& checks, Language l) {
  const bool zh = l == Language::chinese;
  std::string out;
  int warnings = 0, failures = 0;
  for (const Check& c : checks) {
    warnings += c.status == Status::warning;
    failures += c.status == Status::failed;
    const std::string mark = word(c.status, l);
    // A Chinese character takes two columns.
    const size_t columns = zh ? 4 : mark.size();
    out += fmt::format("{}{} {:<16} {}\n", mark, std::string(columns < 8 ? 8 - columns : 0, ' '), c.id,
                       one_line(c.evidence.in(l), 1000));
    if (!c.remedy.empty() && c.status != Status::ok)
      out += fmt::format("{:25} {} {}\n", "", zh ? "→" : "->", c.remedy.in(l));
  }
  out += zh ? fmt::format("{} 项失败，{} 项注意。", failures, warnings)
            : fmt::format("{} failed, {} warnings.", failures, warnings);
  if (failures + warnings > 0)
    out += zh ? " 粘贴报错信息：danqing doctor --explain -" : " Paste an error message: danqing doctor --explain -";
  return out + "\n";
}

Json to_json(const std::vector<Check>& checks) {
  Json list = Json::array();
  for (const Check& c : checks)
    list.push_back({{"id", c.id},
                    {"status", std::string(name(c.status))},
                    {"evidence", pair(c.evidence)},
                    {"remedy", c.remedy.empty() ? Json() : pair(c.remedy)}});
  return list;
}

std::string report_text(const std::vector<Explanation>& found, Language l) {
  const bool zh = l == Language::chinese;
  if (found.empty())
    return zh ? "没有认出已知的错误。运行 danqing doctor 检查本机。\n"
              : "No known error recognised. danqing doctor looks at the machine itself.\n";
  std::string out;
  for (const Explanation& x : found) {
    const KnownError& e = *x.error;
    if (!out.empty()) out += "\n";
    out += fmt::format("{}: {}\n", e.id, e.title.in(l));
    if (!x.line.empty()) out += fmt::format("  {}{}\n", zh ? "日志：" : "log:   ", x.line);
    out += fmt::format("  {}{}\n", zh ? "原因：" : "cause: ", e.cause.in(l));
    for (size_t i = 0; i < e.steps.size(); ++i) out += fmt::format("  {}. {}\n", i + 1, e.steps[i].in(l));
    out += fmt::format("  {}{}\n", zh ? "来源：" : "source: ", e.source);
  }
  return out;
}

Json to_json(const std::vector<Explanation>& found) {
  Json list = Json::array();
  for (const Explanation& x : found) {
    const KnownError& e = *x.error;
    Json steps{{"en", Json::array()}, {"zh", Json::array()}};
    for (const Text& t : e.steps) steps["en"].push_back(t.en), steps["zh"].push_back(t.zh);
    list.push_back({{"id", e.id},
                    {"line", x.line},
                    {"title", pair(e.title)},
                    {"cause", pair(e.cause)},
                    {"steps", steps},
                    {"source", e.source}});
  }
  return list;
}

}  // namespace danqing::doctor
