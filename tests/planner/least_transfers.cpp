#include "least_transfers.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cycle_mean.h"

namespace spillway::planner {
namespace {

using profile::kCarriedIn;
using profile::kNoValue;
using profile::kSurvives;
using profile::OpIndex;
using profile::StepTape;
using profile::TapeOp;
using profile::TapeValue;
using profile::ValueIndex;

/// Per value two bits for its resident pages without a copy and two for those with one.
using State = std::uint64_t;
using Costs = std::unordered_map<State, std::uint32_t>;

std::uint32_t dirty(State state, ValueIndex value) { return state >> (4 * value) & 3; }
std::uint32_t clean(State state, ValueIndex value) { return state >> (4 * value + 2) & 3; }

State with(State state, ValueIndex value, std::uint32_t dirty, std::uint32_t clean) {
  return (state & ~(State{15} << (4 * value))) | State{dirty | clean << 2} << (4 * value);
}

void keep_least(Costs& costs, State state, std::uint32_t cost) {
  const auto [place, is_new] = costs.emplace(state, cost);
  if (!is_new) place->second = std::min(place->second, cost);
}

class Explorer {
 public:
  Explorer(const StepTape& tape, std::uint32_t budget, PagePrice price)
      : tape_(tape), budget_(budget), price_(price) {}

  std::optional<double> least_mean() {
    State begin = 0;
    for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
      if (tape_.values[i].birth == kCarriedIn) begin = with(begin, i, tape_.values[i].pages, 0);
    }
    number_of(begin);
    for (std::uint32_t from = 0; from < boundaries_.size(); ++from) {
      Costs costs{{boundaries_[from], 0}};
      for (OpIndex op = 0; op < tape_.ops.size(); ++op) costs = after(op, costs);
      if (costs.empty()) return std::nullopt;
      for (const auto& [state, cost] : costs) {
        const std::uint32_t to = number_of(renumbered(state));
        edges_.push_back({from, to, cost});
      }
    }
    return least_cycle_mean(edges_, boundaries_.size());
  }

 private:
  std::uint32_t number_of(State state) {
    const auto [place, is_new] =
        numbers_.emplace(state, static_cast<std::uint32_t>(boundaries_.size()));
    if (is_new) boundaries_.push_back(state);
    return place->second;
  }

  Costs after(OpIndex op, const Costs& before) const {
    const TapeOp& entry = tape_.ops[op];
    std::vector<bool> is_used(tape_.values.size(), false);
    std::vector<bool> is_written(tape_.values.size(), false);
    for (std::uint32_t i = 0; i < entry.use_count; ++i) {
      const auto& use = tape_.uses[entry.first_use + i];
      is_used[use.value] = true;
      if (use.writes) is_written[use.value] = true;
    }
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
        keep_least(result, finished(op, fits, is_written), paid);
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

  State finished(OpIndex op, State state, const std::vector<bool>& is_written) const {
    for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
      const TapeValue& value = tape_.values[i];
      if (is_written[i] || value.birth == op) state = with(state, i, value.pages, 0);
      if (value.death == op) state = with(state, i, 0, 0);
    }
    return state;
  }

  State renumbered(State state) const {
    State next = 0;
    for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
      const TapeValue& value = tape_.values[i];
      if (value.death == kSurvives && value.becomes != kNoValue)
        next = with(next, value.becomes, dirty(state, i), clean(state, i));
    }
    return next;
  }

  const StepTape& tape_;
  const std::uint32_t budget_;
  const PagePrice price_;
  std::unordered_map<State, std::uint32_t> numbers_;
  std::vector<State> boundaries_;  ///< All that a step can begin with.
  std::vector<StepEdge> edges_;
};

}  // namespace

std::optional<double> least_transfers(const StepTape& tape, std::uint32_t budget_pages,
                                      PagePrice price) {
  const bool is_small =
      tape.values.size() <= kMostExactValues &&
      std::all_of(tape.values.begin(), tape.values.end(),
                  [](const TapeValue& value) { return value.pages <= kMostExactPages; });
  if (!is_small) return std::nullopt;
  return Explorer(tape, budget_pages, price).least_mean();
}

}  // namespace spillway::planner
