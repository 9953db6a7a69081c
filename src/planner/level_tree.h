#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace spillway::planner {

/// Page levels of the operators of a repeating step: adds to stretches, asks for their maximum,
/// both in logarithmic time. Stretches may run over the end of the step, and several times around
/// it.
class LevelTree {
 public:
  explicit LevelTree(const std::vector<std::uint32_t>& levels)
      : op_count_(static_cast<std::uint32_t>(levels.size())), leaves_(1) {
    // A full binary tree in one array: the children of node i are 2 i and 2 i + 1, and leaves stand
    // at the end. Those without an operator are too low to be a maximum, and far enough from the
    // end of the numbers for sums.
    while (leaves_ < op_count_) leaves_ *= 2;
    highest_.assign(std::size_t{2} * leaves_, std::numeric_limits<std::int64_t>::min() / 4);
    added_.assign(std::size_t{2} * leaves_, 0);
    std::copy(levels.begin(), levels.end(), highest_.begin() + leaves_);
    for (std::uint32_t i = leaves_ - 1; i > 0; --i) highest_[i] = higher_child(i);
  }

  std::uint32_t op_count() const { return op_count_; }
  void add(std::uint32_t first, std::uint32_t length, std::int64_t pages) {
    // Around the step more than once: so many copies of the value are out at each operator.
    for (; length >= op_count_; length -= op_count_) add_linear(0, op_count_, pages);
    if (length == 0) return;
    first %= op_count_;
    const std::uint32_t before_end = std::min(length, op_count_ - first);
    add_linear(first, first + before_end, pages);
    if (before_end < length) add_linear(0, length - before_end, pages);
  }

  std::int64_t max(std::uint32_t first, std::uint32_t length) const {
    if (length >= op_count_) return highest_[1];
    first %= op_count_;
    const std::uint32_t before_end = std::min(length, op_count_ - first);
    const std::int64_t here = max_linear(first, first + before_end);
    return before_end < length ? std::max(here, max_linear(0, length - before_end)) : here;
  }

  std::int64_t at(std::uint32_t op) const {
    std::int64_t level = highest_[op + leaves_];
    for (std::uint32_t i = (op + leaves_) / 2; i > 0; i /= 2) level += added_[i];
    return level;
  }

 private:
  void add_linear(std::uint32_t first, std::uint32_t end, std::int64_t pages) {
    std::uint32_t left = first + leaves_;
    std::uint32_t right = end + leaves_;
    const auto add_to = [&](std::uint32_t node) {
      highest_[node] += pages;
      // It is not passed on to the children. Whoever walks up from a leaf adds it on its way, so
      // questions change nothing.
      if (node < leaves_) added_[node] += pages;
    };
    for (std::uint32_t l = left, r = right; l < r; l /= 2, r /= 2) {
      if (l % 2 == 1) add_to(l++);
      if (r % 2 == 1) add_to(--r);
    }
    rebuild_above(left);
    rebuild_above(right - 1);
  }

  std::int64_t max_linear(std::uint32_t first, std::uint32_t end) const {
    // Walks up from both borders; what was added to an ancestor counts for all found below it.
    constexpr std::int64_t kNothing = std::numeric_limits<std::int64_t>::min() / 2;
    std::int64_t left_max = kNothing;
    std::int64_t right_max = kNothing;
    std::uint32_t left = first + leaves_;
    std::uint32_t right = end - 1 + leaves_;
    left_max = highest_[left];
    right_max = highest_[right];
    while (left / 2 != right / 2) {
      if (left % 2 == 0) left_max = std::max(left_max, highest_[left + 1]);
      if (right % 2 == 1) right_max = std::max(right_max, highest_[right - 1]);
      left /= 2;
      right /= 2;
      left_max += added_[left];
      right_max += added_[right];
    }
    std::int64_t both = std::max(left_max, right_max);
    for (std::uint32_t i = left / 2; i > 0; i /= 2) both += added_[i];
    return both;
  }

  void rebuild_above(std::uint32_t leaf) {
    for (std::uint32_t i = leaf / 2; i > 0; i /= 2) highest_[i] = higher_child(i) + added_[i];
  }

  std::int64_t higher_child(std::size_t node) const {
    return std::max(highest_[2 * node], highest_[2 * node + 1]);
  }

  std::uint32_t op_count_;
  std::uint32_t leaves_;
  std::vector<std::int64_t>
      highest_;  ///< Highest level of the subtree, with what was added to it as a whole.
  std::vector<std::int64_t> added_;  ///< To the whole subtree.
};

/// Sums over operators of a repeating step, in constant time. Stretches may run over the end of the
/// step, and several times around it.
class CircularSums {
 public:
  explicit CircularSums(const std::vector<double>& numbers) : before_(numbers.size() + 1, 0.0) {
    for (std::size_t op = 0; op < numbers.size(); ++op) before_[op + 1] = before_[op] + numbers[op];
  }

  double sum(std::size_t first, std::uint64_t length) const {
    const std::size_t op_count = before_.size() - 1;
    first %= op_count;
    const std::size_t end = first + length % op_count;
    double sum = static_cast<double>(length / op_count) * before_[op_count];
    sum += before_[std::min(end, op_count)] - before_[first];
    if (end > op_count) sum += before_[end - op_count];
    return sum;
  }

 private:
  std::vector<double> before_;
};

}  // namespace spillway::planner
