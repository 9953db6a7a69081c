#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace spillway::partition {

/// Two figures that add up. What they mean is the caller's.
struct SumPair {
  double a = 0.0;
  double b = 0.0;

  SumPair& operator+=(const SumPair& other) { return a += other.a, b += other.b, *this; }
};
inline SumPair operator+(SumPair one, const SumPair& other) { return one += other; }
inline SumPair operator-(const SumPair& one, const SumPair& other) {
  return {one.a - other.a, one.b - other.b};
}

/// Items at positions 0..n-1, each with a rank of its own: sums over any stretch of positions in
/// the order of ranks. A wavelet matrix with running sums: built in O(n log n), asked in O(log n),
/// and sooner where the stretch is short.
class RankedSums {
 public:
  RankedSums() = default;
  /// `rank_of` is a permutation.
  RankedSums(std::vector<std::uint32_t> rank_of, const std::vector<SumPair>& items) {
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
      for (const std::uint32_t each : item)
        sorted[rank_of[each] >> bit & 1U ? high++ : low++] = each;
      item.swap(sorted);
      level.sums.resize(count + 1);
      for (std::uint32_t i = 0; i < count; ++i) level.sums[i + 1] = level.sums[i] + items[item[i]];
      levels_.push_back(std::move(level));
    }
  }

  bool is_empty() const { return levels_.empty(); }

  /// Takes items of positions [first, end) by increasing rank as long as `fits(sum)` holds, which
  /// it must do for less whenever for more, and returns the sum. `next`, when there is one more,
  /// is the item that did not fit; `has_next` says so.
  template <typename Fits>
  SumPair take(std::uint32_t first, std::uint32_t end, const Fits& fits, SumPair& next,
               bool& has_next) const {
    SumPair sum;
    has_next = false;
    if (first >= end) return sum;
    std::size_t level = 0;
    // A single item needs no more descending, once a level has running sums of its order.
    for (; level < levels_.size() && (level == 0 || end - first > 1); ++level) {
      const Level& here = levels_[level];
      const std::uint32_t low_first = here.low_before[first];
      const std::uint32_t low_end = here.low_before[end];
      if (low_first < low_end) {
        const SumPair low = here.sums[low_end] - here.sums[low_first];
        if (!fits(sum + low)) {
          first = low_first, end = low_end;
          continue;
        }
        sum += low;
      }
      first = here.low_count + first - low_first;
      end = here.low_count + end - low_end;
      if (first == end) return sum;  // All of what is left was low, and taken.
    }
    next = levels_[level - 1].sums[end] - levels_[level - 1].sums[first];
    if (fits(sum + next)) return sum + next;
    has_next = true;
    return sum;
  }

  /// Returns the sums of the items of ranks below `rank` in positions [first, end).
  SumPair below(std::uint32_t first, std::uint32_t end, std::uint32_t rank) const {
    SumPair sum;
    if (levels_.empty() || rank >> levels_.size() != 0) {
      if (levels_.empty() || first >= end) return sum;
      // Every rank is below: both halves of the first level.
      const Level& top = levels_.front();
      const std::uint32_t low_first = top.low_before[first];
      const std::uint32_t low_end = top.low_before[end];
      return top.sums[low_end] - top.sums[low_first] +
             (top.sums[top.low_count + end - low_end] -
              top.sums[top.low_count + first - low_first]);
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

 private:
  struct Level {
    std::vector<std::uint32_t> low_before;  ///< By place: how many before it have a 0 in this bit.
    std::vector<SumPair> sums;              ///< Running, in the order behind this level.
    std::uint32_t low_count = 0;
  };
  std::vector<Level> levels_;  ///< From the highest bit of the rank to the lowest.
};

}  // namespace spillway::partition
