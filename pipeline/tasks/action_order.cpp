#include "spillway/pipeline/tasks/action_order.h"

#include <algorithm>
#include <map>

#include "spillway/base/error.h"
#include "spillway/schedule/boundary_stages.h"

namespace spillway::pipeline {

using schedule::Action;
using schedule::ActionKind;
using schedule::Schedule;

namespace {

std::uint64_t turn_of(const Schedule& schedule, const Action& action) {
  return std::uint64_t{action.micro_batch} * schedule.replica_count() + action.replica;
}

}  // namespace

ActionOrder::ActionOrder(const Schedule& schedule)
    : stages_(schedule.stages),
      turns_(schedule.all_micro_batches()),
      lists_(schedule.ranks.size()) {
  schedule::check_shape(schedule);
  orders_.resize(turns_ * stages_ * kParts);
  std::vector<std::size_t> next(schedule.ranks.size(), 0);
  bool has_moved = true, is_over = false;
  while (has_moved) {
    has_moved = false;
    is_over = true;
    for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank) {
      const std::vector<Action>& list = schedule.ranks[rank];
      while (next[rank] < list.size() && !is_model_compute(list[next[rank]].kind)) ++next[rank];
      if (next[rank] == list.size()) continue;
      is_over = false;
      if (!may_follow(schedule, list[next[rank]])) continue;
      append(schedule, rank, list[next[rank]++]);
      has_moved = true;
    }
  }
  if (!is_over) throw PlanError("{}: its ranks wait for one another", schedule.name);
}

bool ActionOrder::may_follow(const Schedule& schedule, const Action& action) const {
  const std::uint64_t turn = turn_of(schedule, action);
  const auto is_there = [&](Part part, std::uint32_t stage) {
    return orders_[at(part, stage, turn)] > 0;
  };
  if (action.kind == ActionKind::kWeightGradient)
    return is_there(Part::kInputGradient, action.stage);
  const bool is_forward = action.kind == ActionKind::kForward;
  if (!is_forward && !is_there(Part::kForward, action.stage)) return false;
  const auto source = input_stage(schedule, action);
  return !source || is_there(is_forward ? Part::kForward : Part::kInputGradient, *source);
}

void ActionOrder::append(const Schedule& schedule, std::uint32_t rank, const Action& action) {
  const std::uint64_t turn = turn_of(schedule, action);
  const bool is_forward = action.kind == ActionKind::kForward;
  ++last_;
  if (is_forward) orders_[at(Part::kForward, action.stage, turn)] = last_;
  if (makes_input_gradient(action.kind))
    orders_[at(Part::kInputGradient, action.stage, turn)] = last_;
  if (!is_forward && action.kind != ActionKind::kInputGradient)
    orders_[at(Part::kWeightGradient, action.stage, turn)] = last_;
  lists_[rank].push_back({.order = last_, .phase = 2 * turn + (is_forward ? 0 : 1)});
}

std::optional<ActionOrder::Place> ActionOrder::place_of(bool is_backward, std::uint32_t stage,
                                                        std::uint64_t turn) const {
  if (turn >= turns_ || stage >= stages_) return std::nullopt;
  Place place;
  place.order = orders_[at(is_backward ? Part::kInputGradient : Part::kForward, stage, turn)];
  place.order_of_rest = is_backward ? orders_[at(Part::kWeightGradient, stage, turn)] : place.order;
  // A stage that trains nothing has no backward.
  if (place.order == 0) place.order = place.order_of_rest;
  if (place.order_of_rest == 0) place.order_of_rest = place.order;
  if (place.order == 0) return std::nullopt;
  return place;
}

std::uint64_t ActionOrder::window_of(std::uint32_t rank) const {
  std::map<std::uint64_t, std::size_t> left;  // Actions, by turn.
  for (const ListedAction& action : lists_[rank]) ++left[action.phase / 2];
  std::uint64_t window = 1, latest = 0;
  for (const ListedAction& action : lists_[rank]) {
    const std::uint64_t turn = action.phase / 2;
    latest = std::max(latest, turn);
    window = std::max(window, latest + 1 - left.begin()->first);
    if (--left[turn] == 0) left.erase(turn);
  }
  return window;
}

}  // namespace spillway::pipeline
