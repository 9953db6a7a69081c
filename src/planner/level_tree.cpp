#include "level_tree.h"

#include <algorithm>
#include <limits>

namespace spillway::planner {

LevelTree::LevelTree(const std::vector<std::uint32_t>& levels)
    : op_count_(static_cast<std::uint32_t>(levels.size())), leaves_(1) {
  // A full binary tree in one array: the children of node i are 2 i and 2 i + 1, and leaves stand
  // at the end. Those without an operator are too low to be a maximum, and far enough from the end
  // of the numbers for sums.
  while (leaves_ < op_count_) leaves_ *= 2;
  highest_.assign(std::size_t{2} * leaves_, std::numeric_limits<std::int64_t>::min() / 4);
  added_.assign(std::size_t{2} * leaves_, 0);
  std::copy(levels.begin(), levels.end(), highest_.begin() + leaves_);
  for (std::uint32_t i = leaves_ - 1; i > 0; --i) highest_[i] = higher_child(i);
}

void LevelTree::add(std::uint32_t first, std::uint32_t length, std::int64_t pages) {
  // Around the step more than once: so many copies of the value are out at each operator.
  for (; length >= op_count_; length -= op_count_) add_linear(0, op_count_, pages);
  if (length == 0) return;
  first %= op_count_;
  const std::uint32_t before_end = std::min(length, op_count_ - first);
  add_linear(first, first + before_end, pages);
  if (before_end < length) add_linear(0, length - before_end, pages);
}

std::int64_t LevelTree::max(std::uint32_t first, std::uint32_t length) const {
  if (length >= op_count_) return highest_[1];
  first %= op_count_;
  const std::uint32_t before_end = std::min(length, op_count_ - first);
  const std::int64_t here = max_linear(first, first + before_end);
  return before_end < length ? std::max(here, max_linear(0, length - before_end)) : here;
}

std::int64_t LevelTree::at(std::uint32_t op) const {
  std::int64_t level = highest_[op + leaves_];
  for (std::uint32_t i = (op + leaves_) / 2; i > 0; i /= 2) level += added_[i];
  return level;
}

void LevelTree::rebuild_above(std::uint32_t leaf) {
  for (std::uint32_t i = leaf / 2; i > 0; i /= 2) highest_[i] = higher_child(i) + added_[i];
}

void LevelTree::add_linear(std::uint32_t first, std::uint32_t end, std::int64_t pages) {
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

std::int64_t LevelTree::max_linear(std::uint32_t first, std::uint32_t end) const {
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

}  // namespace spillway::planner
