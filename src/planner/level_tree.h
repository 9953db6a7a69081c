#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway::planner {

/// Page levels of the operators of a repeating step: adds to stretches, asks for their maximum,
/// both in logarithmic time. Stretches may run over the end of the step, and several times around
/// it.
class LevelTree {
 public:
  explicit LevelTree(const std::vector<std::uint32_t>& levels);

  std::uint32_t op_count() const { return op_count_; }
  void add(std::uint32_t first, std::uint32_t length, std::int64_t pages);
  std::int64_t max(std::uint32_t first, std::uint32_t length) const;
  std::int64_t at(std::uint32_t op) const;

 private:
  void add_linear(std::uint32_t first, std::uint32_t end, std::int64_t pages);
  std::int64_t max_linear(std::uint32_t first, std::uint32_t end) const;
  void rebuild_above(std::uint32_t leaf);
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
