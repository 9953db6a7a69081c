#include "planning/plan_report.h"

#include <algorithm>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/shown_text.h"

namespace spillway::cli {

using nlohmann::ordered_json;

namespace {

constexpr std::size_t kCausesShown = 5;
constexpr std::size_t kCausesKept = 20;  // In JSON.

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

/// Plans move whole pages, and runs of the last page of a tensor the part that it has: told where
/// that makes more than a tenth of all.
std::string pages_text(const PlanningStep& step) {
  Bytes whole;
  Bytes used;
  for (std::size_t i = 0; i < step.profile.bytes_of_value.size(); ++i) {
    whole += step.profile.page_size * step.profile.tape.values[i].pages;
    used += step.profile.bytes_of_value[i];
  }
  if (10 * used >= 9 * whole) return {};
  return message(
      ", in whole pages of {}, of which a run moves what is in use (of all tensors {})",
      step.profile.page_size,
      percent_text(static_cast<double>(used.count()) / static_cast<double>(whole.count())));
}

std::string moved_text(const PlanningStep& step, const ChosenRates& rates,
                       const PlanFigures& figures) {
  if (figures.written == Bytes(0) && figures.read == Bytes(0)) return "nothing is swapped";
  std::string text =
      message("{} out, {} in per step{}", figures.written, figures.read, pages_text(step));
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
  json.update(profile::rates_json<ordered_json>(rates));
  return json;
}

Figure causes(const std::vector<StallCause>& causes, const char* what, const char* count) {
  const Table table{
      std::min(causes.size(), kCausesKept),
      {{"", what, of(causes, &StallCause::what)},
       {"", "seconds", of(causes, &StallCause::seconds, Figure::duration)},
       {"", "for_tensors_seconds", of(causes, &StallCause::pages_seconds, Figure::duration)},
       {"", "for_room_seconds", of(causes, &StallCause::room_seconds, Figure::duration)},
       {"", count, of(causes, &StallCause::count)}}};
  return {{}, table_json(table)};
}

// Plans in files keep pages that small tensors share in memory, and runs that plan for themselves
// do not.
std::string smallest_of_runs(const PlanningStep& step) {
  const auto& needs = step.profile.program_needs;
  if (!needs || needs->budget >= step.smallest_of_step) return {};
  return message("; a run without a plan from here takes --budget {}",
                 budget_of_run(step, needs->budget));
}

}  // namespace

std::string step_text(const PlanningStep& step, const ChosenRates& rates) {
  std::string text = line("step", origin_text(step));
  text +=
      line("needed", "{} of tensors alive at once in the step{}", step.needed,
           step.profile.small_bytes == Bytes() ? "" : ", beside the most small ones of its run");
  const std::string small = small_text(step);
  if (!small.empty()) text += line("small", small);
  text +=
      line("smallest", "--budget {}, set by {}{}{}", budget_of_run(step, step.smallest_of_step),
           operator_text(step, step.neediest), smallest_of_program(step), smallest_of_runs(step));
  return text + line("rates", "{} ({})", rates_text(rates), source_text(rates));
}

std::string plan_text(const PlanningStep& step, const ChosenRates& rates,
                      const PlanFigures& figures) {
  std::string text = step_text(step, rates);
  const double share = static_cast<double>(figures.budget.count()) /
                       static_cast<double>(std::max<std::uint64_t>(1, step.needed.count()));
  text += line("budget", "{}, {}; in a run: --budget {}", figures.budget,
               figures.budget > step.needed ? std::string("more than is needed, so all of it fits")
                                            : percent_text(share) + " of what is needed",
               budget_of_run(step, figures.budget));
  text += line("strategy", figures.source.empty()
                               ? figures.strategy
                               : message("{}, after {}", figures.strategy, figures.source));
  text += line("time", time_text(step, figures));
  text += line("bound", bound_text(step, figures));
  text += line("swapped", moved_text(step, rates, figures));
  text += line("recompute", recompute_text(figures));
  text += line("peak", "{} of tensors in memory", figures.peak);
  if (figures.planning_seconds > 0.0)
    text += line("planned", "in {}{}", seconds_text(figures.planning_seconds),
                 figures.was_cut ? "; the search was cut, more --effort may find better" : "");
  text += causes_text("Operators that wait longest:", "operator", figures.stalls_by_operator);
  return text + causes_text("Tensors that they wait for:", "wait", figures.stalls_by_value);
}

std::string comparison_text(const PlanningStep& step, const ChosenRates& rates,
                            std::span<const PlanFigures> plans) {
  std::string text = step_text(step, rates);
  if (!plans.empty())
    text += line("budget", "{}; in a run: --budget {}", plans.front().budget,
                 budget_of_run(step, plans.front().budget));
  std::string refusals;
  for (const PlanFigures& plan : plans)
    if (!plan.is_possible())
      refusals += message("{} has no plan here: {}\n", plan.strategy, plan.refusal);
  text += '\n';
  text += table_text(plan_table(step, rates, plans), {"strategy", "step", "x in-core", "gap", "out",
                                                      "in", "recomputed", "peak", "planned"});
  if (!refusals.empty()) text += '\n' + refusals;
  return text + "\nspillway plan --help says what each strategy does, and after whom\n";
}

Table plan_table(const PlanningStep& step, const ChosenRates& rates,
                 std::span<const PlanFigures> plans) {
  using Plan = PlanFigures;
  const auto of_needed = [needed = static_cast<double>(step.needed.count())](Bytes budget) {
    return Figure::share(static_cast<double>(budget.count()) / needed);
  };
  const auto of_incore = [incore = step.incore_seconds](double step_seconds) {
    return Figure{ratio_text(step_seconds, incore)};
  };
  const auto bound_kind = [](const Plan& plan) { return planner::name_of(plan.bound.kind); };
  const auto bound_recomputed = [](const Plan& plan) { return plan.bound.recomputed_share; };
  const auto swapped = [](const Plan& plan) { return plan.written + plan.read; };
  const auto operators = [](const auto& all) { return causes(all, "operator", "operators"); };
  const auto values = [](const auto& all) { return causes(all, "value", "waits"); };
  Table table{
      plans.size(),
      {{"strategy", "strategy", of(plans, &Plan::strategy)},
       {"", "source", of(plans, &Plan::source)},
       {"", "is_possible", of(plans, &Plan::is_possible)},
       {"", "refusal", of(plans, &Plan::refusal)},
       {"budget", "budget_bytes", of(plans, &Plan::budget)},
       {"share", "", of(plans, &Plan::budget, of_needed)},
       {"planned", "planning_seconds", of(plans, &Plan::planning_seconds, Figure::duration)},
       {"", "search_was_cut", of(plans, &Plan::was_cut)},
       {"step", "step_seconds", if_possible(plans, &Plan::step_seconds, Figure::duration)},
       {"x in-core", "", if_possible(plans, &Plan::step_seconds, of_incore)},
       {"bound", "bound_seconds", if_possible(plans, &Plan::bound_seconds, Figure::duration)},
       {"", "bound_kind", if_possible(plans, bound_kind)},
       {"", "bound_recomputed_share", if_possible(plans, bound_recomputed, Figure::share)},
       {"gap", "gap", if_possible(plans, &Plan::gap, Figure::share)},
       {"peak", "peak_bytes", if_possible(plans, &Plan::peak)},
       {"", "swapped_bytes", if_possible(plans, swapped)},
       {"out", "swapped_out_bytes", if_possible(plans, &Plan::written)},
       {"in", "swapped_in_bytes", if_possible(plans, &Plan::read)},
       {"recomputed", "recompute_seconds",
        if_possible(plans, &Plan::recompute_seconds, Figure::duration)},
       {"", "recomputed_values", if_possible(plans, &Plan::recomputed_values)},
       {"", "replayed_operators", if_possible(plans, &Plan::replayed_operators)},
       {"", "stall_seconds", if_possible(plans, &Plan::stall_seconds, Figure::duration)},
       {"", "interference_seconds",
        if_possible(plans, &Plan::interference_seconds, Figure::duration)},
       {"", "demand_reads", if_possible(plans, &Plan::demand_reads)},
       {"", "forced_out_bytes", if_possible(plans, &Plan::forced_out)},
       {"", "is_settled", if_possible(plans, &Plan::is_settled)},
       {"", "stalls_by_operator", if_possible(plans, &Plan::stalls_by_operator, operators)},
       {"", "stalls_by_value", if_possible(plans, &Plan::stalls_by_value, values)}}};
  if (!rates.far) return table;
  const auto host_out = [](const Plan& plan) { return plan.written - plan.far_written; };
  const auto host_in = [](const Plan& plan) { return plan.read - plan.far_read; };
  table.columns.insert(table.columns.end(),
                       {{"", "host_out_bytes", if_possible(plans, host_out)},
                        {"", "host_in_bytes", if_possible(plans, host_in)},
                        {"", "disk_out_bytes", if_possible(plans, &Plan::far_written)},
                        {"", "disk_in_bytes", if_possible(plans, &Plan::far_read)},
                        {"", "host_peak_bytes", if_possible(plans, &Plan::host_peak)}});
  return table;
}

ordered_json figures_json(const PlanningStep& step, const ChosenRates& rates,
                          const PlanFigures& figures) {
  ordered_json json = row_json(plan_table(step, rates, {&figures, 1}), 0);
  json["needed_bytes"] = step.needed.count();
  json["small_bytes"] = step.profile.small_bytes.count();
  json["smallest_budget_bytes"] = step.smallest.count();
  json["smallest_budget_operator"] = neediest_text(step);
  json["smallest_budget_of_step_bytes"] = step.smallest_of_step.count();
  json["incore_seconds"] = step.incore_seconds;
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

}  // namespace spillway::cli
