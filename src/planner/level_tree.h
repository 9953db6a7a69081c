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

}  // namespace spillway::planner
