#include "ranked_sums.h"

#include <algorithm>
#include <bit>

namespace spillway::planner {

RankedSums::RankedSums(std::vector<std::uint32_t> rank_of, const std::vector<SumPair>& items) {
  const auto count = static_cast<std::uint32_t>(items.size());
  if (count == 0) return;
  // One level at least, so that a single item is asked for as any other.
  const auto bits = std::max(1, static_cast<int>(std::bit_width(count - 1)));
  std::vector<std::uint32_t> item(count);
  for (std::uint32_t i = 0; i < count; ++i) item[i] = i;
  std::vector<std::uint32_t> sorted(count);
  for (int bit = bits; bit-- > 0;) {
    Level level;
    level.low_before.resize(count + 1);
    for (std::uint32_t i = 0; i < count; ++i)
      level.low_before[i + 1] = level.low_before[i] + (~rank_of[item[i]] >> bit & 1U);
    level.low_count = level.low_before[count];
    std::uint32_t low = 0;
    std::uint32_t high = level.low_count;
    for (const std::uint32_t each : item) sorted[rank_of[each] >> bit & 1U ? high++ : low++] = each;
    item.swap(sorted);
    level.sums.resize(count + 1);
    for (std::uint32_t i = 0; i < count; ++i) level.sums[i + 1] = level.sums[i] + items[item[i]];
    levels_.push_back(std::move(level));
  }
}

SumPair RankedSums::below(std::uint32_t first, std::uint32_t end, std::uint32_t rank) const {
  SumPair sum;
  if (levels_.empty() || rank >> levels_.size() != 0) {
    if (levels_.empty() || first >= end) return sum;
    // Every rank is below: both halves of the first level.
    const Level& top = levels_.front();
    const std::uint32_t low_first = top.low_before[first];
    const std::uint32_t low_end = top.low_before[end];
    return top.sums[low_end] - top.sums[low_first] +
           (top.sums[top.low_count + end - low_end] - top.sums[top.low_count + first - low_first]);
  }
  for (std::size_t level = 0; level < levels_.size() && first < end; ++level) {
    const Level& here = levels_[level];
    const std::uint32_t low_first = here.low_before[first];
    const std::uint32_t low_end = here.low_before[end];
    if (rank >> (levels_.size() - 1 - level) & 1U) {
      sum += here.sums[low_end] - here.sums[low_first];
      first = here.low_count + first - low_first;
      end = here.low_count + end - low_end;
    } else {
      first = low_first;
      end = low_end;
    }
  }
  return sum;
}

}  // namespace spillway::planner
