#include "spillway/split/split_placement.h"

#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/shown_text.h"
#include "spillway/planner/schedule/generators.h"
#include "spillway/schedule/execution_plan.h"
#include "spillway/topology/atomic_file.h"

namespace spillway::split {
namespace {

planner_schedule::ScheduleRequest request_for(std::uint32_t ranks, std::uint64_t micro_batches) {
  planner_schedule::ScheduleRequest request;
  request.ranks = ranks;
  request.micro_batches = static_cast<std::uint32_t>(micro_batches);
  return request;
}

pipeline::Placement generated(const runtime::Settings& settings, std::uint32_t ranks) {
  const std::uint32_t replicas = settings.replicas;
  if (ranks % replicas != 0)
    throw ConfigError("--replicas {}: a job of {} does not divide into so many pipelines (start {} "
                      "ranks, or {})",
                      replicas, counted(ranks, "rank"), replicas, 2 * replicas);
  // The placement of later micro-batches repeats.
  const planner_schedule::ScheduleRequest request =
      request_for(ranks / replicas, 2 * (ranks / replicas));
  const planner_schedule::ScheduleGenerator& generator =
      planner_schedule::schedule_generator_named(settings.schedule);
  const std::uint64_t stages = generator.stage_count(request);
  if (settings.stages != 0 && settings.stages != stages)
    throw ConfigError(
        "--stages {}: with --schedule {} and --replicas {}, {} compute {} (start {}, or leave "
        "--stages out)",
        settings.stages, settings.schedule, replicas, counted(ranks, "rank"),
        counted(stages, "stage"),
        counted(settings.stages * replicas * request.ranks / stages, "rank"));
  schedule::Schedule schedule = generator.generate(request);
  schedule.data_parallel = replicas;
  return pipeline::Placement(schedule);
}

schedule::ExecutionPlan plan_of(const runtime::Settings& settings, std::uint32_t ranks) {
  const std::string& file = settings.plan;
  const std::string command =
      message("spillway plan-job PROFILE --ranks {} --out {}", ranks, shell_word(file));
  schedule::ExecutionPlan plan =
      schedule::parse_execution_plan(topology::text_of_file(file, command), file);
  if (plan.rank_count() != ranks)
    throw ConfigError(
        "{}: this plan is for {}, and the job has {} (start as many, or plan anew: {})", file,
        counted(plan.rank_count(), "rank"), ranks, command);
  if (!plan.order.empty())
    throw ConfigError("{}: this plan runs layers in another order than the program, which cannot "
                      "be split so (plan anew without --order any: {})",
                      file, command);
  for (std::size_t stage = 1; stage < plan.stages.size(); ++stage)
    if (plan.stages[stage].first_operator.empty())
      throw ConfigError("{}: this plan does not tell by which operators its stages begin (plan "
                        "anew: {})",
                        file, command);
  return plan;
}

/// A plan has its own.
void refuse_beside_plan(const runtime::Settings& settings) {
  const runtime::Settings defaults;
  std::string option;
  if (settings.schedule != defaults.schedule) option = "--schedule " + settings.schedule;
  if (settings.replicas != defaults.replicas) option = message("--replicas {}", settings.replicas);
  if (settings.stages != defaults.stages) option = message("--stages {}", settings.stages);
  if (!option.empty())
    throw ConfigError("{} has no place beside --plan {}: a plan has its own (leave one of them "
                      "out)",
                      option, settings.plan);
}

std::uint64_t window_of(const std::string& schedule, const pipeline::Placement& placement,
                        Rank rank) {
  constexpr std::uint64_t kAll = std::uint64_t{1} << 32;
  if (schedule == "gpipe") return kAll;
  if (schedule.starts_with("gems")) return 1;
  const std::vector<std::uint32_t> computed = placement.stages_of(rank);
  return computed.empty() ? 1 : placement.stages() - computed.front();
}

}  // namespace

std::vector<double> Layout::in_flight() const {
  std::vector<double> by_stage;
  for (std::uint32_t stage = 0; stage < placement.stages(); ++stage)
    by_stage.push_back(static_cast<double>(windows[placement.rank_of(stage, 0).value()]));
  return by_stage;
}

pipeline::ActionOrder Layout::order_for(std::uint64_t micro_batches) const {
  if (actions) return pipeline::ActionOrder(*actions);
  const std::uint32_t ranks = placement.ranks() / placement.pipelines();
  return pipeline::ActionOrder(planner_schedule::schedule_generator_named(schedule).generate(
      request_for(ranks, micro_batches)));
}

Layout layout_of(const runtime::Settings& settings, std::uint32_t ranks) {
  std::optional<Layout> made;
  if (settings.plan.empty()) {
    made = Layout{settings.schedule, generated(settings, ranks), {}, {}};
  } else {
    refuse_beside_plan(settings);
    const schedule::ExecutionPlan plan = plan_of(settings, ranks);
    const std::string& name = plan.actions.name;
    made = Layout{name.substr(0, name.find(':')), pipeline::Placement(plan.actions), {}, {}};
    made->actions = plan.actions;
    for (std::size_t stage = 1; stage < plan.stages.size(); ++stage)
      made->marks.push_back(
          {plan.stages[stage].first_operator, plan.stages[stage].operators_before});
  }
  made->is_listed = settings.window == 0;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    made->windows.push_back(settings.window != 0
                                ? settings.window
                                : window_of(made->schedule, made->placement, Rank(rank)));
  return std::move(*made);
}

std::uint32_t ranks_of_shard(const runtime::Settings& settings, std::uint32_t ranks) {
  if (ranks % settings.shards != 0)
    throw ConfigError(
        "--shards {}: a job of {} does not divide into so many shards (start {} ranks, "
        "or {})",
        settings.shards, counted(ranks, "rank"), settings.shards, 2 * settings.shards);
  return ranks / settings.shards;
}

std::string objection_to(const runtime::Settings& settings, Rank rank, std::uint32_t ranks) {
  try {
    const std::uint32_t of_shard = ranks_of_shard(settings, ranks);
    layout_of(settings, of_shard);
    // `spillway run` knows what the launcher says alone.
    const char* const told = std::getenv("SPILLWAY_SHARD");
    const std::string shard = std::to_string(rank.value() / of_shard);
    if (settings.shards > 1 && told != nullptr && told != shard)
      return message("--shards {}: the program was started as shard {}, and is shard {} for MPI",
                     settings.shards, told, shard);
    for (const runtime::DeviceBudget& each : settings.device_budgets)
      if (each.device.starts_with("cuda:") && each.device != "cuda:0")
        return message(
            "the budget of {} is no rank's: with --split each rank has one GPU, which it "
            "calls cuda:0 (give cuda=SIZE, for the GPU of each)",
            each.device);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace spillway::split
