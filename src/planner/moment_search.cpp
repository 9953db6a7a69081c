#include "moment_search.h"

#include <array>
#include <optional>

namespace spillway::planner {

using profile::kNoValue;

namespace {

constexpr std::array<double, 3> kLeads{0.0, 2.0, 8.0};
constexpr std::array<std::uint32_t, 2> kReserveOps{0, 6};
constexpr std::uint32_t kMostReserveOps = 4;
constexpr double kWorthwhile = 1.0 - 1e-6;  // Less is no reason for another round.

class MomentSearch {
 public:
  MomentSearch(const PlanAssembly& assembly, SwapPlan plan)
      : assembly_(assembly),
        tape_(assembly.steps().tape),
        op_count_(tape_.ops.size()),
        best_(std::move(plan)) {}

  SwapPlan search() {
    while (improve_each() | improve_reserves()) {
    }
    return std::move(best_);
  }

 private:
  bool improve_each() {
    bool has_improved = false;
    for (std::size_t i = 0; i < best_.swaps.size(); ++i) {
      const Interval* interval = interval_of(best_.swaps[i]);
      if (!interval || interval->covered_ops >= op_count_) continue;
      for (std::uint32_t leave = 0; leave < interval->covered_ops; ++leave) {
        const bool returns = best_.swaps[i].fetch != kNoOp;
        const std::uint32_t last = returns ? interval->covered_ops + 1 : leave + 1;
        for (std::uint32_t fetch = leave + 1; fetch <= last; ++fetch)
          has_improved |= try_moments(i, *interval, leave, fetch);
      }
    }
    return has_improved;
  }

  bool improve_reserves() {
    bool has_improved = false;
    for (std::uint32_t ahead = 0; ahead <= kMostReserveOps; ++ahead) {
      SwapPlan plan = best_;
      plan.reserve_pages = fetch_reserves(tape_, ahead);
      has_improved |= try_plan(std::move(plan));
    }
    return has_improved;
  }

  bool try_plan(SwapPlan plan) {
    plan.estimate = assembly_.estimate(plan);
    const StepEstimate& before = best_.estimate;
    if (!is_better(plan.estimate, before)) return false;
    const bool is_worthwhile = plan.estimate.is_complete != before.is_complete ||
                               plan.estimate.step_seconds < before.step_seconds * kWorthwhile;
    best_ = std::move(plan);
    return is_worthwhile;
  }

  const Interval* interval_of(const PlannedSwap& swap) const {
    for (const Interval& interval : assembly_.touches().intervals) {
      if (interval.begin != swap.last_touch) continue;
      const std::uint64_t boundaries = swap.leave < swap.last_touch ? 1 : 0;
      if (number_after(interval.value, boundaries) == swap.value) return &interval;
    }
    return nullptr;
  }

  ValueIndex number_after(ValueIndex value, std::uint64_t boundaries) const {
    for (; boundaries > 0 && value != kNoValue; --boundaries) value = tape_.values[value].becomes;
    return value;
  }

  /// Moments count operators from the begin of the interval on.
  bool try_moments(std::size_t index, const Interval& interval, std::uint32_t leave,
                   std::uint32_t fetch) {
    std::vector<PlannedSwap> swaps = best_.swaps;
    PlannedSwap& swap = swaps[index];
    const std::uint64_t leave_at = std::uint64_t{interval.begin} + leave;
    const std::uint64_t fetch_at = std::uint64_t{interval.begin} + fetch;
    swap.leave = static_cast<OpIndex>(leave_at % op_count_);
    swap.value = number_after(interval.value, leave_at / op_count_);
    if (swap.fetch != kNoOp) {
      swap.fetch = static_cast<OpIndex>(fetch_at % op_count_);
      swap.fetch_value = number_after(interval.value, fetch_at / op_count_);
      swap.out_ops = fetch - leave - 1;
    } else {
      swap.fetch_value = swap.needed_value = swap.value;
      swap.out_ops = interval.covered_ops - leave;
    }
    SwapPlan plan = assembly_.moved(std::move(swaps));
    plan.reserve_pages = best_.reserve_pages;
    return try_plan(std::move(plan));
  }

  const PlanAssembly& assembly_;
  const StepTape& tape_;
  const std::uint64_t op_count_;
  SwapPlan best_;
};

}  // namespace

SwapPlan with_best_style(const PlanAssembly& assembly, const std::vector<std::uint32_t>& pages) {
  std::optional<SwapPlan> best;
  for (const WriteOutMoment moment : {WriteOutMoment::kEarly, WriteOutMoment::kLate}) {
    for (const double lead : kLeads) {
      for (const std::uint32_t reserve : kReserveOps) {
        SwapPlan plan = assembly.swapped(pages, {moment, lead, reserve});
        plan.estimate = assembly.estimate(plan);
        if (!best || is_better(plan.estimate, best->estimate)) best = std::move(plan);
      }
    }
  }
  return std::move(*best);
}

SwapPlan with_best_moments(const PlanAssembly& assembly, SwapPlan plan) {
  return MomentSearch(assembly, std::move(plan)).search();
}

}  // namespace spillway::planner
