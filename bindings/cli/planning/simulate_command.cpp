#include "planning/commands.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "planning/plan_report.h"
#include "planning/step_trace.h"
#include "planning/trace_overlay.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/log.h"
#include "spillway/base/shown_text.h"
#include "spillway/planner/plan_file.h"
#include "spillway/topology/atomic_file.h"

namespace spillway::cli {

namespace {

struct Simulated {
  planner::StepPlan plan;
  PlanFigures figures;
  planner::SwapLimits limits;
  ChosenRates rates;
};

/// That the plan counts on other tensors beside its own than the profile has.
std::string text_of_other_small(const planner::PlanFile& file, const std::string& name,
                                const PlanningStep& step) {
  const Bytes planned = file.small_bytes;
  const Bytes here = step.profile.small_bytes;
  return message(
      "{} keeps room for {} that never leave, {} has {} of them: {} (make the plan again "
      "with: spillway plan {} --budget {} --out {})",
      name, planned, step.path, here,
      here > planned ? message("the step may take up to {} more than the budget of {}",
                               here - planned, file.budget)
                     : message("{} of the budget of {} stay unused", planned - here, file.budget),
      shell_word(step.path), as_option(file.budget), shell_word(name));
}

Simulated stored_plan(const SimulateOptions& options, const PlanningStep& step) {
  const std::string text = topology::text_of_file(
      options.plan, message("spillway plan {} --budget SIZE --out {}",
                            shell_word(options.common.profile), shell_word(options.plan)));
  const auto file = planner::parse_plan_file(text, options.plan);
  Simulated simulated;
  simulated.rates = {file.rates, "of the plan"};
  if (file.far)
    simulated.rates.far =
        DisksBehind{file.far->rates, file.far->near_pages * file.page_size, "of the plan"};
  // Other rates than the plan was made for: what it does on another machine.
  if (options.common.rates != RateOptions{})
    simulated.rates = choose_rates(options.common.rates, step.profile);
  simulated.limits = file.limits();
  simulated.limits.rates = simulated.rates.rates;
  simulated.limits.far = far_tier(simulated.rates, file.page_size);
  const profile::StepProfile& profile = step.profile;
  simulated.plan =
      planner::fit_plan(file, options.plan, profile.tape, profile.page_size, simulated.limits,
                        [&](profile::OpIndex op) { return profile.kinds[profile.kind_of_op[op]]; });
  simulated.figures = figures_of(
      case_for(step, file.budget, simulated.limits, options.common.bound), simulated.plan);
  if (file.small_bytes != step.profile.small_bytes)
    log_warning("{}", text_of_other_small(file, options.plan, step));
  return simulated;
}

Simulated new_plan(const SimulateOptions& options, const PlanningStep& step, const Clock& clock) {
  if (!options.common.budget)
    throw ConfigError("name what to simulate: a plan with --plan FILE, or a budget to plan for "
                      "with --budget SIZE");
  Simulated simulated;
  simulated.rates = choose_rates(options.common.rates, step.profile);
  const Bytes budget = budget_in(step, *options.common.budget);
  warn_of_oversize(step, budget);
  simulated.limits = limits_for(step, budget, simulated.rates);
  EvaluatedPlan evaluated = plan_asked_for(
      options.common, case_for(step, budget, simulated.limits, options.common.bound), clock);
  simulated.plan = std::move(evaluated.plan);
  simulated.figures = std::move(evaluated.figures);
  return simulated;
}

/// What the event model alone takes: the goal is 20 ms for 10,000 operators.
double model_seconds(const Simulated& simulated, const Clock& clock) {
  const TimePoint begin = clock.now();
  planner::estimate_step(simulated.plan.steps.tape, simulated.plan.swaps, simulated.limits);
  return seconds(clock.now() - begin);
}

profile::StepTrace predicted_trace(const PlanningStep& step, const Simulated& simulated) {
  planner::StepEvents events;
  const planner::StepEstimate estimate = planner::observe_step(
      simulated.plan.steps.tape, simulated.plan.swaps, simulated.limits, events);
  return trace_of(step, simulated.plan, events, estimate);
}

/// Of a run with several devices, that of the one whose step was recorded.
std::optional<profile::StepTrace> trace_of_run(const std::string& file, const PlanningStep& step) {
  if (file.empty()) return std::nullopt;
  const std::string text =
      topology::text_of_file(file, message("spillway run --trace {} -- PROGRAM", shell_word(file)));
  profile::StepTrace trace = profile::parse_chrome_trace(text, file, step.profile.origin.device);
  if (trace.source != profile::TraceSource::kRun)
    throw ConfigError("--beside {} is {}, not the trace of a run (spillway run --trace FILE -- "
                      "PROGRAM writes one)",
                      file,
                      trace.source == profile::TraceSource::kPrediction
                          ? "a prediction of spillway simulate"
                          : "a trace that does not say who wrote it");
  return trace;
}

}  // namespace

void simulate_plan(const SimulateOptions& options, std::ostream& out, const Clock& clock) {
  std::vector<NamedFile> read = files_read(options.common.profile, options.common.rates);
  read.push_back({"--plan", options.plan});
  read.push_back({"--beside", options.beside});
  check_outputs(read, {{"--trace", options.trace}});
  const PlanningStep step = load_step(options.common.profile);
  const std::optional<profile::StepTrace> run = trace_of_run(options.beside, step);
  const Simulated simulated =
      options.plan.empty() ? new_plan(options, step, clock) : stored_plan(options, step);
  std::vector<profile::StepTrace> traces;
  if (run || !options.trace.empty()) traces.push_back(predicted_trace(step, simulated));
  std::optional<TraceOverlay> beside;
  if (run) {
    beside = overlay(step, traces.front(), *run, options.beside);
    traces.push_back(beside->measured);
  }
  if (!options.trace.empty())
    topology::write_file_at_once(options.trace, profile::to_chrome_trace(traces));
  const double model = model_seconds(simulated, clock);
  if (options.common.json) {
    auto json = figures_json(step, simulated.rates, simulated.figures);
    json["model_seconds"] = model;
    if (beside) json["measured"] = overlay_json(step, *beside);
    out << json_text(json);
    return;
  }
  out << plan_text(step, simulated.rates, simulated.figures)
      << line("model", "{} for one simulation of {}", seconds_text(model),
              counted(simulated.plan.steps.tape.ops.size(), "operator"));
  if (beside) out << overlay_text(step, *beside);
  if (!options.trace.empty())
    out << "trace written to " << options.trace << "; open it in https://ui.perfetto.dev or "
        << "chrome://tracing\n";
}

}  // namespace spillway::cli
