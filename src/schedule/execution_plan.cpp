#include "spillway/schedule/execution_plan.h"

#include <algorithm>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/schedule/messages.h"
#include "spillway/schedule/schedule_check.h"
#include "spillway/schedule/weight_copies.h"

namespace spillway::schedule {
namespace {

using PlanFault = std::optional<std::string>;

PlanFault order_fault(const std::vector<std::uint32_t>& order, std::size_t layers) {
  if (order.empty()) return std::nullopt;
  if (order.size() != layers)
    return message("its order has {}, and its stages {}", counted(order.size(), "layer"), layers);
  std::vector<char> is_there(layers, 0);
  for (std::size_t place = 0; place < layers; ++place) {
    const std::uint32_t layer = order[place];
    if (layer >= layers)
      return message("place {} of its order names layer {} of {}", place, layer, layers);
    if (is_there[layer] != 0) return message("its order names layer {} twice", layer);
    is_there[layer] = 1;
  }
  return std::nullopt;
}

PlanFault stage_fault(const ExecutionPlan& plan) {
  std::uint32_t next = 0;
  for (std::size_t k = 0; k < plan.stages.size(); ++k) {
    const PlannedStage& stage = plan.stages[k];
    for (const std::uint32_t layer : stage.recomputed)
      if (layer < stage.first || layer > stage.last)
        return message("stage {} recomputes layer {}, which is none of its layers {} to {}", k,
                       layer, stage.first, stage.last);
    if (stage.first != next)
      return message("stage {} begins with layer {}, and the one before ends so that {} comes next",
                     k, stage.first, next);
    if (stage.last < stage.first)
      return message("stage {} goes from layer {} back to layer {}", k, stage.first, stage.last);
    next = stage.last + 1;
  }
  if (next != plan.layers)
    return message("its stages end before layer {}, and its model has {}", next,
                   counted(plan.layers, "layer"));
  if (plan.stages.size() != plan.actions.stages)
    return message("it has {}, and its actions are of {}", counted(plan.stages.size(), "stage"),
                   plan.actions.stages);
  return order_fault(plan.order, next);
}

/// Each layer has operators, and they stand in the order of the layers.
PlanFault step_fault(const ProfiledStep& step, std::uint32_t layers) {
  if (step.layer_of_operator.size() > step.operators)
    return message("it names the layers of {}, and its step has {}",
                   counted(step.layer_of_operator.size(), "operator"), step.operators);
  std::uint32_t next = 0;
  for (std::size_t op = 0; op < step.layer_of_operator.size(); ++op) {
    const std::uint32_t layer = step.layer_of_operator[op];
    if (layer == kNoLayer || layer + 1 == next) continue;
    if (layer != next)
      return message("operator {} of its step is of layer {}, where one of layer {} comes next", op,
                     layer, next);
    ++next;
  }
  if (next != layers)
    return message("layer {} has no operator in its step, and its model has {}", next,
                   counted(layers, "layer"));
  return std::nullopt;
}

std::vector<OperatorRange> ranges_of(const ProfiledStep& step, const std::vector<char>& is_wanted) {
  std::vector<OperatorRange> ranges;
  for (std::uint32_t op = 0; op < step.layer_of_operator.size(); ++op) {
    const std::uint32_t layer = step.layer_of_operator[op];
    if (layer == kNoLayer || is_wanted[layer] == 0) continue;
    if (!ranges.empty() && ranges.back().last + 1 == op)
      ranges.back().last = op;
    else
      ranges.push_back({op, op});
  }
  return ranges;
}

const ProfiledStep& step_of(const ExecutionPlan& plan) {
  if (!plan.step)
    throw PlanError("the plan does not say which operators its layers are (make it of a profile)");
  return *plan.step;
}

std::uint32_t layer_at(const ExecutionPlan& plan, std::uint32_t place) {
  return plan.order.empty() ? place : plan.order[place];
}

RankStage stage_on(const ExecutionPlan& plan, const WeightCopies& copies, std::uint32_t rank,
                   std::uint32_t stage) {
  const Schedule& action_lists = plan.actions;
  RankStage view{.stage = stage,
                 .replicas = {},
                 .operators = operators_of(plan, stage),
                 .recomputed = recomputed_operators_of(plan, stage),
                 .stash = plan.stages[stage].stash,
                 .swapped = plan.stages[stage].swapped,
                 .reducers = {}};
  for (std::uint32_t replica = 0; replica < action_lists.replica_count(); ++replica)
    if (action_lists.rank_of(replica, stage) == rank) view.replicas.push_back(replica);
  for (std::uint32_t pipeline = 0; pipeline < action_lists.data_parallel; ++pipeline)
    for (const std::uint32_t reducer : copies.reducers(stage))
      view.reducers.push_back(pipeline * action_lists.rank_count() + reducer);
  std::sort(view.reducers.begin(), view.reducers.end());
  return view;
}

}  // namespace

std::optional<std::string> plan_fault(const ExecutionPlan& plan) {
  if (auto fault = stage_fault(plan)) return fault;
  if (plan.step)
    if (auto fault = step_fault(*plan.step, plan.layers)) return fault;
  const auto fault = first_fault(plan.actions);
  if (!fault) return std::nullopt;
  return to_string(*fault);
}

std::string_view operator_of_layer(std::string_view layer_name) {
  return layer_name.substr(0, layer_name.find(' '));
}

std::vector<OperatorRange> operators_of(const ExecutionPlan& plan, std::uint32_t stage) {
  const ProfiledStep& step = step_of(plan);
  std::vector<char> is_wanted(plan.layers, 0);
  for (std::uint32_t place = plan.stages[stage].first; place <= plan.stages[stage].last; ++place)
    is_wanted[layer_at(plan, place)] = 1;
  return ranges_of(step, is_wanted);
}

std::vector<OperatorRange> recomputed_operators_of(const ExecutionPlan& plan, std::uint32_t stage) {
  const ProfiledStep& step = step_of(plan);
  std::vector<char> is_wanted(plan.layers, 0);
  for (const std::uint32_t place : plan.stages[stage].recomputed)
    is_wanted[layer_at(plan, place)] = 1;
  return ranges_of(step, is_wanted);
}

RankSchedule rank_schedule(const ExecutionPlan& plan, std::uint32_t rank) {
  if (rank >= plan.rank_count())
    throw PlanError("there is no rank {} in a plan of {}", rank,
                    counted(plan.rank_count(), "rank"));
  const Schedule& action_lists = plan.actions;
  const WeightCopies copies(action_lists);
  RankSchedule view{
      .rank = rank, .pipeline = rank / action_lists.rank_count(), .stages = {}, .actions = {}};
  const std::uint32_t own = rank % action_lists.rank_count();
  const std::uint32_t first = rank - own;
  for (std::size_t copy = 0; copy < copies.size(); ++copy)
    if (copies[copy].rank == own)
      view.stages.push_back(stage_on(plan, copies, own, copies[copy].stage));
  std::sort(view.stages.begin(), view.stages.end(),
            [](const RankStage& a, const RankStage& b) { return a.stage < b.stage; });
  for (const Action& action : action_lists.ranks[own]) {
    RankAction& done = view.actions.emplace_back(RankAction{action, std::nullopt});
    if (!is_send(action.kind) && !is_receive(action.kind)) continue;
    if (const auto peer = peer_of(action_lists, copies, own, action)) done.peer = first + *peer;
  }
  return view;
}

}  // namespace spillway::schedule
