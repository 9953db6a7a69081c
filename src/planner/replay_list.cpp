#include "replay_list.h"

#include <optional>
#include <utility>

#include "spillway/base/error.h"

namespace spillway::planner {
namespace {

// Less is not worth a copy of the plan.
constexpr double kWorthwhile = 0.99999;

/// None where an operator would not find what it needs.
std::optional<ReplayList> planned(const StepTape& tape, const SwapLimits& limits,
                                  std::vector<Replay> replays, const SwapStyle& style) {
  ReplayList list;
  try {
    list.steps = rewrite_tape(tape, replays);
  } catch (const PlanError&) {
    return std::nullopt;
  }
  list.replays = std::move(replays);
  list.swaps = {style, SwapSearch(list.steps.tape, limits).plan(style)};
  return list;
}

}  // namespace

ReplayList evict_on_line(const StepTape& tape, const Recomputation& all, const SwapLimits& limits,
                         std::uint32_t pages, const SwapStyle& style,
                         const StopCheck& should_stop) {
  OnlineEviction eviction(tape, all, pages, FreedValues::kStay, should_stop);
  return *planned(tape, limits, eviction.run(), style);
}

ReplayList without_needless(const StepTape& tape, const SwapLimits& limits, ReplayList list,
                            const std::function<bool(std::size_t ops)>& may_try) {
  for (bool has_improved = true; has_improved;) {
    has_improved = false;
    // What is computed from others comes before them, so these are needless when their turn comes.
    for (std::size_t i = list.replays.size(); i-- > 0;) {
      if (!may_try(list.steps.op_of.size())) return list;
      std::vector<Replay> less = list.replays;
      less.erase(less.begin() + static_cast<std::ptrdiff_t>(i));
      std::optional<ReplayList> next = planned(tape, limits, std::move(less), list.swaps.style);
      if (!next || !is_better(next->estimate(), list.estimate(), kWorthwhile)) continue;
      list = std::move(*next);
      has_improved = true;
    }
  }
  return list;
}

}  // namespace spillway::planner
