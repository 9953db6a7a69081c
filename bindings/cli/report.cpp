#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "findings.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"

namespace spillway::cli {
namespace {

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk: return "ok";
    case Verdict::kWarning: return "warning";
    case Verdict::kProblem: break;
  }
  return "problem";
}

}  // namespace

std::string report_text(const std::vector<Finding>& findings) {
  std::ostringstream out;
  std::size_t widest = 0;
  for (const Finding& finding : findings) widest = std::max(widest, finding.subject.size());
  for (const Finding& finding : findings) {
    std::string verdict = name_of(finding.verdict);
    verdict.resize(8, ' ');
    out << verdict << finding.subject << std::string(widest - finding.subject.size() + 2, ' ')
        << finding.value << '\n';
    if (!finding.mend.empty())
      out << std::string(widest + 10, ' ') << "-> " << finding.mend << '\n';
  }
  const auto count = [&](Verdict verdict) {
    return static_cast<std::uint64_t>(
        std::count_if(findings.begin(), findings.end(),
                      [&](const Finding& finding) { return finding.verdict == verdict; }));
  };
  out << findings.size() << " checks: " << count(Verdict::kOk) << " ok, "
      << counted(count(Verdict::kWarning), "warning") << ", "
      << counted(count(Verdict::kProblem), "problem") << '\n';
  return out.str();
}

void to_json(nlohmann::json& json, const Finding& finding) {
  json = {finding.subject, finding.value, static_cast<int>(finding.verdict), finding.mend};
}

void from_json(const nlohmann::json& json, Finding& finding) {
  finding = {json.at(0), json.at(1), static_cast<Verdict>(json.at(2).get<int>()), json.at(3)};
}

std::string report_json(const std::vector<Finding>& findings) {
  return report_json(findings, nullptr);
}

std::string report_json(const std::vector<Finding>& findings, const nlohmann::ordered_json& job) {
  nlohmann::ordered_json checks = nlohmann::ordered_json::array();
  for (const Finding& finding : findings)
    checks.push_back({{"subject", finding.subject},
                      {"value", finding.value},
                      {"verdict", name_of(finding.verdict)},
                      {"mend", finding.mend}});
  nlohmann::ordered_json json = {{"format", "spillway doctor"},
                                 {"version", 1},
                                 {"verdict", name_of(worst(findings))},
                                 {"checks", std::move(checks)}};
  if (!job.is_null()) json["job"] = job;
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace spillway::cli
