#include "planning/plan_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "planning/planning_text.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/shown_text.h"

namespace spillway::cli {

using nlohmann::ordered_json;

namespace {

constexpr std::size_t kCausesShown = 5;
constexpr std::size_t kCausesKept = 20;  // In JSON.
constexpr std::size_t kLabel = 10;

std::string line(std::string label, const std::string& text) {
  label.resize(kLabel, ' ');
  return label + text + "\n";
}

std::string origin_text(const PlanningStep& step) {
  const profile::ProfileOrigin& origin = step.profile.origin;
  const std::string& program = origin.command.empty() ? origin.program : origin.command;
  std::string text =
      message("{}, {}", program.empty() ? step.path : shortened(program, kMostBytesInLine),
              counted(step.profile.tape.ops.size(), "operator"));
  if (origin.source == "recorded" && origin.steps > 0)
    return text + message(", times from {}", counted(origin.steps, "recorded step"));
  if (!origin.source.empty()) text += message(", {}", origin.source);
  return text;
}

std::string time_text(const PlanningStep& step, const PlanFigures& figures) {
  std::string text = message(
      "{} per step, {} times in-core ({})", seconds_text(figures.step_seconds),
      ratio_text(figures.step_seconds, step.incore_seconds), seconds_text(step.incore_seconds));
  std::string parts;
  const auto add = [&](double seconds, const char* what) {
    if (seconds > 0.0)
      parts += message("{}{} {}", parts.empty() ? "" : ", ", seconds_text(seconds), what);
  };
  add(figures.stall_seconds, "waiting for transfers");
  add(figures.interference_seconds, "slowed down by transfers");
  add(figures.recompute_seconds, "recomputing");
  if (!figures.is_settled)
    parts += message("{}a mean of repetitions that go on to differ", parts.empty() ? "" : ", ");
  return parts.empty() ? text : text + "; " + parts;
}

/// What the bound grants: so much of what has to come back is computed instead.
std::string granted_text(const planner::StepBound& bound) {
  if (bound.recomputed_share <= 0.0) return {};
  return message(", where {} of what comes back is recomputed in {}",
                 percent_text(bound.recomputed_share), seconds_text(bound.recompute_seconds));
}

std::string limit_text(const PlanningStep& step, const planner::StepBound& bound) {
  switch (bound.kind) {
    case planner::BoundKind::kCompute: return "its operators take that long";
    case planner::BoundKind::kTransfers:
      return message("at least {} out and {} in have to move{}",
                     bound.written_pages * step.profile.page_size,
                     bound.read_pages * step.profile.page_size,
                     bound.is_of_far_tier ? ", to and from the disks" : "");
    case planner::BoundKind::kWindow:
      return message("most is lost from operator {}, {}, to {}{}", bound.from,
                     step.profile.kinds[step.profile.kind_of_op[bound.from]].name, bound.to,
                     granted_text(bound));
    case planner::BoundKind::kFluid: break;
  }
  return "from a linear program over the step" + granted_text(bound);
}

std::string bound_text(const PlanningStep& step, const PlanFigures& figures) {
  return message("{}: no plan is faster here ({}); this one is {} above it",
                 seconds_text(figures.bound_seconds), limit_text(step, figures.bound),
                 percent_text(figures.gap()));
}

std::string source_text(const ChosenRates& rates) {
  if (!rates.far || rates.far->source == rates.source) return rates.source;
  return message("{}; {}", rates.source, rates.far->source);
}

std::string moved_text(const ChosenRates& rates, const PlanFigures& figures) {
  if (figures.written == Bytes(0) && figures.read == Bytes(0)) return "nothing is swapped";
  std::string text = message("{} out, {} in per step", figures.written, figures.read);
  if (figures.read > figures.written)
    text += ", some of it from copies written once and still good";
  if (figures.demand_reads > 0)
    text += message(", {} on demand as operators ask for them",
                    counted(figures.demand_reads, "tensor"));
  if (!rates.far) return text;
  return text + message("; of it {} and {} to and from the disks, {} at most in host memory",
                        figures.far_written, figures.far_read, figures.host_peak);
}

std::string recompute_text(const PlanFigures& figures) {
  if (figures.replayed_operators == 0) return "nothing";
  return message("{} by {}, {}", counted(figures.recomputed_values, "value"),
                 counted(figures.replayed_operators, "operator"),
                 seconds_text(figures.recompute_seconds));
}

std::string causes_text(const char* title, const char* each,
                        const std::vector<StallCause>& causes) {
  if (causes.empty()) return {};
  std::string text = std::string(title) + "\n";
  for (std::size_t i = 0; i < std::min(causes.size(), kCausesShown); ++i) {
    const StallCause& cause = causes[i];
    const char* why = cause.room_seconds == 0.0    ? "for tensors"
                      : cause.pages_seconds == 0.0 ? "for room"
                                                   : "for tensors and room";
    text += message("  {} {}: {}, {}\n", seconds_text(cause.seconds()), why, cause.what,
                    counted(cause.count, each));
  }
  if (causes.size() > kCausesShown)
    text += message("  and {} more\n", causes.size() - kCausesShown);
  return text;
}

ordered_json rates_json(const std::string& source, const profile::TransferRates& rates) {
  ordered_json json = {{"source", source}};
  for (const profile::RateField& field : profile::kRateFields) json[field.key] = rates.*field.field;
  return json;
}

ordered_json causes_json(const std::vector<StallCause>& causes, const char* what,
                         const char* count) {
  ordered_json list = ordered_json::array();
  for (std::size_t i = 0; i < std::min(causes.size(), kCausesKept); ++i)
    list.push_back({{what, causes[i].what},
                    {"seconds", causes[i].seconds()},
                    {"for_tensors_seconds", causes[i].pages_seconds},
                    {"for_room_seconds", causes[i].room_seconds},
                    {count, causes[i].count}});
  return list;
}

/// As `spillway run --budget` takes it: of a GPU for that one alone.
std::string budget_of_run(const PlanningStep& step, Bytes size) {
  const std::string& device = step.profile.origin.device;
  return device.starts_with("cuda:") ? message("{}={}", device, as_option(size)) : as_option(size);
}

// Plans in files keep pages that small tensors share in memory, and runs that plan for themselves
// do not.
std::string smallest_of_runs(const PlanningStep& step) {
  const auto& needs = step.profile.program_needs;
  if (!needs || needs->budget >= step.smallest) return {};
  return message("; a run without a plan from here takes --budget {}",
                 budget_of_run(step, needs->budget));
}

}  // namespace

std::string step_text(const PlanningStep& step, const ChosenRates& rates) {
  std::string text = line("step", origin_text(step));
  text += line("needed", message("{} of tensors alive at once in the step", step.needed));
  const std::string small = small_text(step);
  if (!small.empty()) text += line("small", small);
  text += line("smallest", message("--budget {}, set by {}{}", budget_of_run(step, step.smallest),
                                   neediest_text(step), smallest_of_runs(step)));
  return text + line("rates", message("{} ({})", rates_text(rates), source_text(rates)));
}

std::string plan_text(const PlanningStep& step, const ChosenRates& rates,
                      const PlanFigures& figures) {
  std::string text = step_text(step, rates);
  const double share = static_cast<double>(figures.budget.count()) /
                       static_cast<double>(std::max<std::uint64_t>(1, step.needed.count()));
  text += line("budget", message("{}, {} of what is needed; in a run: --budget {}", figures.budget,
                                 percent_text(share), budget_of_run(step, figures.budget)));
  text += line("strategy", figures.source.empty()
                               ? figures.strategy
                               : message("{}, after {}", figures.strategy, figures.source));
  text += line("time", time_text(step, figures));
  text += line("bound", bound_text(step, figures));
  text += line("swapped", moved_text(rates, figures));
  text += line("recompute", recompute_text(figures));
  text += line("peak", message("{} of tensors in memory", figures.peak));
  if (figures.planning_seconds > 0.0)
    text +=
        line("planned",
             message("in {}{}", seconds_text(figures.planning_seconds),
                     figures.was_cut ? "; the search was cut, more --effort may find better" : ""));
  text += causes_text("Operators that wait longest:", "operator", figures.stalls_by_operator);
  return text + causes_text("Tensors that they wait for:", "wait", figures.stalls_by_value);
}

std::string comparison_text(const PlanningStep& step, const ChosenRates& rates,
                            std::span<const PlanFigures> plans) {
  std::string text = step_text(step, rates);
  if (!plans.empty())
    text += line("budget", message("{}; in a run: --budget {}", plans.front().budget,
                                   budget_of_run(step, plans.front().budget)));
  std::vector<std::vector<std::string>> rows{
      {"strategy", "step", "x in-core", "gap", "out", "in", "recomputed", "peak", "planned"}};
  std::string sources;
  for (const PlanFigures& plan : plans) {
    if (!plan.source.empty()) sources += message("  {}: {}\n", plan.strategy, plan.source);
    if (!plan.is_possible()) {
      rows.push_back(
          {plan.strategy, "-", "-", "-", "-", "-", "-", "-", seconds_text(plan.planning_seconds)});
      sources += message("  {} has no plan here: {}\n", plan.strategy, plan.refusal);
      continue;
    }
    rows.push_back({plan.strategy, seconds_text(plan.step_seconds),
                    ratio_text(plan.step_seconds, step.incore_seconds), percent_text(plan.gap()),
                    to_string(plan.written), to_string(plan.read),
                    seconds_text(plan.recompute_seconds), to_string(plan.peak),
                    seconds_text(plan.planning_seconds)});
  }
  text += '\n';
  text += table_text(rows);
  return sources.empty() ? text : text + "\nSources:\n" + sources;
}

ordered_json figures_json(const PlanningStep& step, const ChosenRates& rates,
                          const PlanFigures& figures) {
  ordered_json json = {{"strategy", figures.strategy},
                       {"source", figures.source},
                       {"is_possible", figures.is_possible()},
                       {"refusal", figures.refusal},
                       {"budget_bytes", figures.budget.count()},
                       {"needed_bytes", step.needed.count()},
                       {"small_bytes", step.profile.small_bytes.count()},
                       {"smallest_budget_bytes", step.smallest.count()},
                       {"smallest_budget_operator", neediest_text(step)},
                       {"smallest_budget_of_step_bytes", step.smallest_of_step.count()},
                       {"incore_seconds", step.incore_seconds},
                       {"planning_seconds", figures.planning_seconds},
                       {"search_was_cut", figures.was_cut}};
  if (figures.is_possible()) {
    json["step_seconds"] = figures.step_seconds;
    json["bound_seconds"] = figures.bound_seconds;
    json["bound_kind"] = planner::name_of(figures.bound.kind);
    json["bound_recomputed_share"] = figures.bound.recomputed_share;
    json["gap"] = figures.gap();
    json["peak_bytes"] = figures.peak.count();
    json["swapped_bytes"] = (figures.written + figures.read).count();
    json["swapped_out_bytes"] = figures.written.count();
    json["swapped_in_bytes"] = figures.read.count();
    if (rates.far) {
      json["host_out_bytes"] = (figures.written - figures.far_written).count();
      json["host_in_bytes"] = (figures.read - figures.far_read).count();
      json["disk_out_bytes"] = figures.far_written.count();
      json["disk_in_bytes"] = figures.far_read.count();
      json["host_peak_bytes"] = figures.host_peak.count();
    }
    json["recompute_seconds"] = figures.recompute_seconds;
    json["recomputed_values"] = figures.recomputed_values;
    json["replayed_operators"] = figures.replayed_operators;
    json["stall_seconds"] = figures.stall_seconds;
    json["interference_seconds"] = figures.interference_seconds;
    json["demand_reads"] = figures.demand_reads;
    json["forced_out_bytes"] = figures.forced_out.count();
    json["is_settled"] = figures.is_settled;
    json["stalls_by_operator"] = causes_json(figures.stalls_by_operator, "operator", "operators");
    json["stalls_by_value"] = causes_json(figures.stalls_by_value, "value", "waits");
  }
  json["rates"] = rates_json(rates.source, rates.rates);
  if (rates.far) {
    json["disk_rates"] = rates_json(rates.far->source, rates.far->rates);
    json["host_memory_bytes"] = rates.far->host_memory.count();
  }
  json["profile"] = {{"path", step.path},
                     {"program", step.profile.origin.program},
                     {"command", step.profile.origin.command},
                     {"origin", step.profile.origin.source},
                     {"operators", step.profile.tape.ops.size()},
                     {"values", step.profile.tape.values.size()}};
  return json;
}

std::string json_text(const ordered_json& json) {
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace spillway::cli
