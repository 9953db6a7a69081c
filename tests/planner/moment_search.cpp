#include "moment_search.h"

#include <algorithm>
#include <array>
#include <optional>

namespace spillway::planner {

namespace {

constexpr std::array<double, 3> kLeads{0.0, 2.0, 8.0};
constexpr std::array<std::uint32_t, 2> kReserveOps{0, 6};
constexpr std::uint32_t kMostReserveOps = 4;
constexpr double kWorthwhile = 1.0 - 1e-6;  // Less is no reason for another round.

/// The stretch in which a swap takes its value out; null for one that is none of the tape's.
const Interval* interval_of(const PlanAssembly& assembly, const PlannedSwap& swap) {
  for (const Interval& interval : assembly.touches().intervals) {
    if (interval.begin != swap.last_touch) continue;
    const std::uint64_t boundaries = swap.leave < swap.last_touch ? 1 : 0;
    if (number_after(assembly.steps().tape, interval.value, boundaries) == swap.value)
      return &interval;
  }
  return nullptr;
}

class MomentSearch {
 public:
  MomentSearch(const PlanAssembly& assembly, SwapPlan plan)
      : assembly_(assembly),
        tape_(assembly.steps().tape),
        op_count_(tape_.ops.size()),
        best_(std::move(plan)) {}

  SwapPlan search(MomentEffort effort) {
    do {
      while (improve_each() | improve_reserves()) {
      }
    } while (effort == MomentEffort::kPairs && improve_pairs());
    return std::move(best_);
  }

 private:
  /// When a swap leaves and comes back, in operators from the begin of its interval on.
  struct Moments {
    std::uint32_t leave = 0;
    std::uint32_t fetch = 0;
  };

  /// All that a swap could have; none for one that is no interval's, or out for whole steps.
  std::vector<Moments> moments_of(const PlannedSwap& swap) const {
    std::vector<Moments> all;
    const Interval* interval = interval_of(assembly_, swap);
    if (!interval || interval->covered_ops >= op_count_) return all;
    for (std::uint32_t leave = 0; leave < interval->covered_ops; ++leave) {
      const std::uint32_t last = swap.fetch != kNoOp ? interval->covered_ops + 1 : leave + 1;
      for (std::uint32_t fetch = leave + 1; fetch <= last; ++fetch) all.push_back({leave, fetch});
    }
    return all;
  }

  bool improve_each() {
    bool has_improved = false;
    for (std::size_t i = 0; i < best_.swaps.size(); ++i) {
      for (const Moments& moments : moments_of(best_.swaps[i])) {
        std::vector<PlannedSwap> swaps = best_.swaps;
        move(swaps[i], moments);
        has_improved |= try_swaps(std::move(swaps));
      }
    }
    return has_improved;
  }

  /// What one swap wins only if another one makes room for it.
  bool improve_pairs() {
    bool has_improved = false;
    for (std::size_t i = 0; i < best_.swaps.size(); ++i) {
      const std::vector<Moments> first = moments_of(best_.swaps[i]);
      for (std::size_t j = i + 1; j < best_.swaps.size(); ++j) {
        const std::vector<Moments> second = moments_of(best_.swaps[j]);
        for (std::size_t both = 0; both < first.size() * second.size(); ++both) {
          std::vector<PlannedSwap> swaps = best_.swaps;
          move(swaps[i], first[both / second.size()]);
          move(swaps[j], second[both % second.size()]);
          has_improved |= try_swaps(std::move(swaps));
        }
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

  void move(PlannedSwap& swap, const Moments& moments) const {
    const Interval& interval = *interval_of(assembly_, swap);
    const std::uint64_t leave_at = std::uint64_t{interval.begin} + moments.leave;
    const std::uint64_t fetch_at = std::uint64_t{interval.begin} + moments.fetch;
    swap.leave = static_cast<OpIndex>(leave_at % op_count_);
    swap.value = number_after(tape_, interval.value, leave_at / op_count_);
    if (swap.fetch != kNoOp) {
      swap.fetch = static_cast<OpIndex>(fetch_at % op_count_);
      swap.fetch_value = number_after(tape_, interval.value, fetch_at / op_count_);
      swap.out_ops = moments.fetch - moments.leave - 1;
    } else {
      swap.fetch_value = swap.needed_value = swap.value;
      swap.out_ops = interval.covered_ops - moments.leave;
    }
  }

  bool try_swaps(std::vector<PlannedSwap> swaps) {
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

SwapPlan with_best_style(const PlanAssembly& assembly, const std::vector<std::uint32_t>& pages,
                         WriteOutMoment moment) {
  std::optional<SwapPlan> best;
  for (const double lead : kLeads) {
    for (const std::uint32_t reserve : kReserveOps) {
      SwapPlan plan = assembly.swapped(pages, {moment, lead, reserve});
      plan.estimate = assembly.estimate(plan);
      if (!best || is_better(plan.estimate, best->estimate)) best = std::move(plan);
    }
  }
  return std::move(*best);
}

SwapPlan with_best_moments(const PlanAssembly& assembly, SwapPlan plan, MomentEffort effort) {
  return MomentSearch(assembly, std::move(plan)).search(effort);
}

bool has_same_moments(const SwapPlan& a, const SwapPlan& b) {
  return a.estimate.step_seconds == b.estimate.step_seconds &&
         std::equal(a.swaps.begin(), a.swaps.end(), b.swaps.begin(), b.swaps.end(),
                    [](const PlannedSwap& one, const PlannedSwap& other) {
                      return one.value == other.value && one.last_touch == other.last_touch &&
                             one.leave == other.leave && one.fetch == other.fetch;
                    });
}

}  // namespace spillway::planner
