#include "spillway/planner/swap_plan.h"

#include <algorithm>

#include "spillway/base/error.h"
#include "touch_intervals.h"

namespace spillway::planner {

using profile::kCarriedIn;
using profile::kNoValue;

namespace {

// An interval ends within four steps after its own, and transfers happen inside of it.
constexpr std::uint64_t kMostSteps = 6;

// Plans come from files, and the event model trusts its plan: an index out of range would be read,
// and a fetch that is not its swap's would make pages out of nothing.
class ChoiceCheck {
 public:
  ChoiceCheck(const StepTape& tape, const SwapChoices& choices)
      : tape_(tape), choices_(choices), op_count_(tape.ops.size()) {}

  void check() const {
    check_size(choices_.reserve_pages, op_count_, "reserves");
    if (!choices_.use_distance.empty())
      check_size(choices_.use_distance, tape_.uses.size(), "distances of uses");
    if (!choices_.birth_distance.empty())
      check_size(choices_.birth_distance, tape_.values.size(), "distances of births");
    for (std::uint32_t i = 0; i < choices_.swaps.size(); ++i) check_swap(i);
    check_order(choices_.write_outs, &PlannedSwap::leave, "write-outs");
    check_order(choices_.fetches, &PlannedSwap::fetch, "fetches");
  }

 private:
  static void check_size(const std::vector<std::uint32_t>& list, std::size_t size,
                         const char* what) {
    if (list.size() != size)
      throw PlanError("the plan has {} {} instead of {}", list.size(), what, size);
  }

  static void require(bool is_right, std::uint32_t swap, const char* what) {
    if (!is_right) throw PlanError("{} of swap {} contradicts the step", what, swap);
  }

  bool is_used_by(ValueIndex value, OpIndex op) const {
    const auto touches = touches_of(tape_, op);
    return std::any_of(touches.begin(), touches.end(),
                       [&](const auto& use) { return use.value == value; });
  }

  void check_swap(std::uint32_t index) const {
    const PlannedSwap& swap = choices_.swaps[index];
    require(swap.value < tape_.values.size(), index, "the value");
    const auto& value = tape_.values[swap.value];
    require(swap.pages > 0 && swap.pages <= value.pages, index, "the number of pages");
    require(swap.far_pages <= swap.pages, index, "the number of far pages");
    require(swap.leave < op_count_ && swap.last_touch < op_count_, index, "the moment of leaving");
    const bool is_alive =
        (value.birth == kCarriedIn || value.birth <= swap.leave) && value.death >= swap.leave;
    require(is_alive, index, "the life of the value");
    require(swap.out_ops <= kMostSteps * op_count_, index, "the time out");
    if (swap.fetch == kNoOp) {
      require(swap.needed == kNoOp, index, "the next use");
      require(swap.fetch_value < tape_.values.size() && swap.needed_value < tape_.values.size(),
              index, "the value that stays out");
      return;
    }
    require(swap.fetch < op_count_ && swap.needed < op_count_, index, "the moment of coming back");
    const std::uint64_t fetch = std::uint64_t{swap.leave} + 1 + swap.out_ops;
    // Both are stored, since a swap may stay out for several steps; so they have to agree.
    require(fetch % op_count_ == swap.fetch, index, "the time out");
    require(number_after(tape_, swap.value, fetch / op_count_) == swap.fetch_value &&
                swap.fetch_value != kNoValue,
            index, "the fetched value");
    ValueIndex needed = swap.fetch_value;
    // Between the fetch and the use the step may end, and the value gets another number each time.
    for (std::uint64_t step = 0; step < kMostSteps && needed != swap.needed_value; ++step)
      needed = number_after(tape_, needed, 1);
    require(needed == swap.needed_value && needed != kNoValue && is_used_by(needed, swap.needed),
            index, "the next use");
  }

  /// Every swap that has such a moment stands there once, and moments do not go back.
  void check_order(const std::vector<std::uint32_t>& order, OpIndex PlannedSwap::*moment,
                   const char* what) const {
    std::vector<bool> is_there(choices_.swaps.size(), false);
    // Lists by operator are made of these, and keep the order within one.
    OpIndex last = 0;
    for (const std::uint32_t i : order) {
      const bool is_new = i < is_there.size() && !is_there[i];
      const OpIndex at = is_new ? choices_.swaps[i].*moment : kNoOp;
      if (at == kNoOp || at < last) throw PlanError("the order of {} contradicts the swaps", what);
      is_there[i] = true;
      last = at;
    }
    for (std::uint32_t i = 0; i < is_there.size(); ++i) {
      if (!is_there[i] && choices_.swaps[i].*moment != kNoOp)
        throw PlanError("swap {} is missing among the {}", i, what);
    }
  }

  const StepTape& tape_;
  const SwapChoices& choices_;
  const std::uint64_t op_count_;
};

PerOp grouped(const std::vector<std::uint32_t>& order, const std::vector<PlannedSwap>& swaps,
              OpIndex PlannedSwap::*moment, std::size_t op_count) {
  std::vector<OpIndex> keys;
  keys.reserve(order.size());
  for (const std::uint32_t i : order) keys.push_back(swaps[i].*moment);
  PerOp result = group_by_op(keys, op_count);
  for (std::uint32_t& entry : result.entries) entry = order[entry];
  return result;
}

}  // namespace

SwapChoices choices_of(const StepTape& tape, const SwapPlan& plan) {
  SwapChoices choices;
  choices.swaps = plan.swaps;
  choices.write_outs = plan.write_outs.entries;
  choices.fetches = plan.fetches.entries;
  choices.reserve_pages = plan.reserve_pages;
  choices.filled_share = plan.filled_share;
  const TouchIntervals touches = find_intervals(tape);
  // Only `demand` tells distances that are not the tape's, to evict by age; files of all others
  // need not hold a number per use.
  if (plan.use_distance != touches.use_distance) choices.use_distance = plan.use_distance;
  if (plan.birth_distance != touches.birth_distance) choices.birth_distance = plan.birth_distance;
  return choices;
}

SwapPlan restore_swaps(const StepTape& tape, const SwapChoices& choices, const SwapLimits& limits) {
  profile::check(tape);
  ChoiceCheck(tape, choices).check();
  SwapPlan plan;
  const std::size_t op_count = tape.ops.size();
  TouchIntervals touches = find_intervals(tape);
  plan.swaps = choices.swaps;
  plan.write_outs = grouped(choices.write_outs, plan.swaps, &PlannedSwap::leave, op_count);
  plan.fetches = grouped(choices.fetches, plan.swaps, &PlannedSwap::fetch, op_count);
  plan.use_distance =
      choices.use_distance.empty() ? std::move(touches.use_distance) : choices.use_distance;
  plan.birth_distance =
      choices.birth_distance.empty() ? std::move(touches.birth_distance) : choices.birth_distance;
  plan.reserve_pages = choices.reserve_pages;
  plan.births = births_per_op(tape);
  plan.filled_share = choices.filled_share;
  plan.smallest_budget_pages = smallest_budget(tape);
  plan.is_feasible = plan.smallest_budget_pages <= limits.budget_pages;
  // Whether the plan works at all is for the event model to say, not for these checks.
  plan.estimate = estimate_step(tape, plan, limits);
  return plan;
}

}  // namespace spillway::planner
