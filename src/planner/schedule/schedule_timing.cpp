#include "spillway/planner/schedule/schedule_timing.h"

#include <algorithm>
#include <cmath>

#include "schedule_run.h"
#include "spillway/base/error.h"

namespace spillway::planner {
namespace {

bool is_time(double seconds) { return std::isfinite(seconds) && seconds >= 0.0; }

void check_seconds(std::string_view what, std::size_t stage, double seconds) {
  if (!is_time(seconds))
    throw ConfigError("{} of stage {} cannot be {} s (give 0 or more)", what, stage, seconds);
}

void check_link(std::string_view what, const LinkCosts& link) {
  if (!is_time(link.latency_seconds))
    throw ConfigError("the latency of {} cannot be {} s (give 0 or more)", what,
                      link.latency_seconds);
  if (!(link.bytes_per_second > 0.0))
    throw ConfigError("{} cannot carry {} bytes/s (give more than 0)", what, link.bytes_per_second);
}

void check_share(std::string_view what, double share) {
  if (!(share >= 0.0 && share <= 1.0))
    throw ConfigError("{} cannot be {} of the stash (give 0 to 1)", what, share);
}

void check_costs(const Schedule& schedule, const ScheduleCosts& costs) {
  if (costs.stages.size() != schedule.stages)
    throw ConfigError("there are costs of {} stages for the {} of the schedule",
                      costs.stages.size(), schedule.stages);
  for (std::size_t i = 0; i < costs.stages.size(); ++i) {
    const StageCosts& stage = costs.stages[i];
    check_seconds("forward", i, stage.forward_seconds);
    check_seconds("input gradient", i, stage.input_gradient_seconds);
    check_seconds("weight gradient", i, stage.weight_gradient_seconds);
    check_seconds("recomputation", i, stage.recompute_seconds);
    check_seconds("step", i, stage.step_seconds);
  }
  check_link("the link between ranks", costs.peer);
  check_link("the link to the host", costs.host);
  check_link("the link for reductions", costs.reduce);
  if (costs.shared_sums.ranks == 0 || !(costs.shared_sums.bytes_per_second > 0.0))
    throw ConfigError("a link cannot carry {} bytes/s of the sums of {} ranks (give more than 0)",
                      costs.shared_sums.bytes_per_second, costs.shared_sums.ranks);
  check_share("the kept input", costs.shares.input);
  check_share("what is kept after the input gradient", costs.shares.after_input_gradient);
}

}  // namespace

bool swaps_parts(const std::vector<StageCosts>& stages) {
  return std::any_of(stages.begin(), stages.end(),
                     [](const StageCosts& stage) { return stage.swapped > Bytes(0); });
}

double seconds_of(const StageCosts& stage, ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward: return stage.forward_seconds;
    case ActionKind::kInputGradient: return stage.input_gradient_seconds;
    case ActionKind::kWeightGradient: return stage.weight_gradient_seconds;
    case ActionKind::kRecompute: return stage.recompute_seconds;
    case ActionKind::kStep: return stage.step_seconds;
    default: return stage.input_gradient_seconds + stage.weight_gradient_seconds;
  }
}

ScheduleCosts even_costs(const Schedule& schedule, double forward_seconds,
                         double input_gradient_seconds, double weight_gradient_seconds) {
  ScheduleCosts costs;
  StageCosts stage;
  stage.forward_seconds = forward_seconds;
  stage.input_gradient_seconds = input_gradient_seconds;
  stage.weight_gradient_seconds = weight_gradient_seconds;
  stage.recompute_seconds = forward_seconds;
  costs.stages.assign(schedule.stages, stage);
  return costs;
}

ScheduleTiming time_schedule(const Schedule& schedule, const ScheduleCosts& costs) {
  check_shape(schedule);
  check_costs(schedule, costs);
  return ScheduleRun(schedule, costs).run();
}

}  // namespace spillway::planner
