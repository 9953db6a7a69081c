#include "greedy_cuts.h"

namespace spillway::partition {
namespace {

/// The last place from `low` to `high` where `fits`, which holds at `low` and for less whenever for
/// more. Steps double away from `guess`.
template <typename Fits>
std::uint32_t last_fit(std::uint32_t low, std::uint32_t high, std::uint32_t guess,
                       const Fits& fits) {
  if (low >= high) return low;
  // `low` is known to fit, so the first look is behind it.
  guess = std::clamp(guess, low + 1, high);
  std::uint32_t bad = high + 1;
  if (fits(guess)) {
    low = guess;
    for (std::uint32_t step = 1; low < high; step *= 2) {
      const std::uint32_t next = high - low > step ? low + step : high;
      if (!fits(next)) {
        bad = next;
        break;
      }
      low = next;
    }
  } else {
    bad = guess;
    for (std::uint32_t step = 1; bad - low > 1; step *= 2) {
      const std::uint32_t next = bad - low > step ? bad - step : low + 1;
      if (next <= low) break;
      if (fits(next)) {
        low = next;
        break;
      }
      bad = next;
    }
  }
  while (bad - low > 1) {
    const std::uint32_t middle = low + (bad - low) / 2;
    (fits(middle) ? low : bad) = middle;
  }
  return low;
}

}  // namespace

GreedyCuts greedy_cuts(const SegmentGoal& goal, const CutRange& range, Borders borders, double at,
                       const CutWindows* windows) {
  GreedyCuts result;
  const std::uint32_t stages = range.stages();
  result.cuts.reserve(stages + 1);
  result.cuts.push_back(range.first_unit);
  std::uint32_t length = 1;
  for (std::uint32_t k = 0; k < stages; ++k) {
    const std::uint32_t stage = range.first_stage + k;
    const std::uint32_t first = result.cuts.back();
    std::uint32_t low = first;
    // One unit is left for each stage behind.
    std::uint32_t high = range.end_unit - (stages - 1 - k);
    if (windows != nullptr) {
      // Fillings with less and with more cost are known, and this one ends between them.
      low = std::max(low, windows->least[k + 1]);
      high = std::min(high, windows->most[k + 1]);
    }
    if (low < high) {
      double above = kNever;  // Costs that do not fit grow with the segment: the last is the least.
      const std::uint32_t end = last_fit(low, high, first + length, [&](std::uint32_t to) {
        const double cost = goal.cost({first, to, stage}, borders);
        if (cost > at) above = std::min(above, cost);
        return cost <= at;
      });
      result.next_cost = std::min(result.next_cost, above);
      low = end;
    }
    result.has_empty |= low == first;
    // Stages of one pipeline are about equally long, so a search that starts there is short.
    length = std::max(1U, low - first);
    result.cuts.push_back(low);
  }
  result.is_complete = result.cuts.back() == range.end_unit;
  return result;
}

GreedyCuts earliest_cuts(const SegmentGoal& goal, const CutRange& range, double at) {
  GreedyCuts result;
  result.cuts.assign(range.stages() + 1, range.end_unit);
  std::uint32_t length = 1;
  for (std::uint32_t k = range.stages(); k-- > 0;) {
    const std::uint32_t end = result.cuts[k + 1];
    // One unit is left for each stage before.
    const std::uint32_t most = end - std::min(end, range.first_unit + k);
    // Without borders costs only grow with a segment, on which `last_fit` relies.
    const std::uint32_t taken = last_fit(0, most, length, [&](std::uint32_t units) {
      const double cost = goal.cost({end - units, end, range.first_stage + k}, Borders::kNone);
      if (cost > at) result.next_cost = std::min(result.next_cost, cost);
      return cost <= at;
    });
    result.has_empty |= taken == 0;
    length = std::max(1U, taken);
    result.cuts[k] = end - taken;
  }
  result.is_complete = result.cuts.front() == range.first_unit;
  return result;
}

}  // namespace spillway::partition
