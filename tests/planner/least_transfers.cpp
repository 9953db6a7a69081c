#include "least_transfers.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "cycle_mean.h"
#include "step_states.h"

namespace spillway::planner {
namespace {

using profile::OpIndex;
using profile::StepTape;
using profile::TapeOp;
using profile::ValueIndex;

using Costs = std::unordered_map<State, std::uint32_t>;

void keep_least(Costs& costs, State state, std::uint32_t cost) {
  const auto [place, is_new] = costs.emplace(state, cost);
  if (!is_new) place->second = std::min(place->second, cost);
}

class Explorer {
 public:
  Explorer(const StepTape& tape, std::uint32_t budget, PagePrice price)
      : tape_(tape), budget_(budget), price_(price) {}

  std::optional<double> least_mean() {
    boundaries_.number_of(first_state(tape_));
    for (std::uint32_t from = 0; from < boundaries_.size(); ++from) {
      Costs costs{{boundaries_[from], 0}};
      for (OpIndex op = 0; op < tape_.ops.size(); ++op) costs = after(op, costs);
      if (costs.empty()) return std::nullopt;
      for (const auto& [state, cost] : costs) {
        const std::uint32_t to = boundaries_.number_of(renumbered(tape_, state));
        edges_.push_back({from, to, cost});
      }
    }
    return least_cycle_mean(edges_, boundaries_.size());
  }

 private:
  Costs after(OpIndex op, const Costs& before) const {
    const TapeOp& entry = tape_.ops[op];
    const OpMarks marks = marks_of(tape_, op);
    const std::vector<bool>& is_used = marks.is_used;
    Costs result;
    for (const auto& known : before) {
      State state = known.first;
      std::uint32_t cost = known.second;
      std::uint32_t held = entry.inside_peak_pages;
      for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
        const std::uint32_t here = dirty(state, i) + clean(state, i);
        if (is_used[i]) {
          const std::uint32_t missing = tape_.values[i].pages - here;
          cost += missing * price_.read;
          state = with(state, i, dirty(state, i), clean(state, i) + missing);
        }
        held += is_used[i] ? tape_.values[i].pages : here;
      }
      Costs fitting;
      // Letting more go than must go is never better than letting it go later.
      evict(state, cost, held > budget_ ? held - budget_ : 0, 0, is_used, fitting);
      for (const auto& [fits, paid] : fitting)
        keep_least(result, state_after(tape_, op, marks, fits), paid);
    }
    return result;
  }

  /// All ways to let exactly `excess` pages go, of values from `value` on.
  void evict(State state, std::uint32_t cost, std::uint32_t excess, ValueIndex value,
             const std::vector<bool>& is_used, Costs& fitting) const {
    if (excess == 0) return keep_least(fitting, state, cost);
    if (value == tape_.values.size()) return;
    const std::uint32_t most_dirty = is_used[value] ? 0 : std::min(excess, dirty(state, value));
    for (std::uint32_t d = 0; d <= most_dirty; ++d) {
      const std::uint32_t most_clean =
          is_used[value] ? 0 : std::min(excess - d, clean(state, value));
      for (std::uint32_t c = 0; c <= most_clean; ++c) {
        evict(with(state, value, dirty(state, value) - d, clean(state, value) - c),
              cost + d * price_.write, excess - d - c, value + 1, is_used, fitting);
      }
    }
  }

  const StepTape& tape_;
  const std::uint32_t budget_;
  const PagePrice price_;
  BoundaryStates boundaries_;
  std::vector<StepEdge> edges_;
};

}  // namespace

std::optional<double> least_transfers(const StepTape& tape, std::uint32_t budget_pages,
                                      PagePrice price) {
  if (!fits_state(tape, kMostExactValues)) return std::nullopt;
  return Explorer(tape, budget_pages, price).least_mean();
}

}  // namespace spillway::planner
