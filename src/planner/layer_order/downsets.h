#pragma once

#include <cstdint>
#include <vector>

#include "unit_graph.h"

namespace spillway::layer_order {

/// Sets of units that may have run: with each unit all its inputs are in. The stages of a pipeline,
/// in any order of the units, are what lies between downsets of which each holds the one before.
///
/// All downsets of a graph where there are at most so many; else those that the orders pass
/// through, and of each size the ones that the fewest bytes leave, as many as there is room for.
class Downsets {
 public:
  Downsets(const UnitGraph& graph, const std::vector<UnitOrder>& orders, std::uint32_t most);

  std::uint32_t count() const { return static_cast<std::uint32_t>(size_.size()); }
  bool are_all() const { return are_all_; }
  /// Units in it. Downsets count by size: the first is empty, the last is the whole graph.
  std::uint32_t size(std::uint32_t set) const { return size_[set]; }
  /// Bytes of tensors that are made in it and read outside.
  double crossing_bytes(std::uint32_t set) const { return crossing_[set]; }

  bool is_inside(std::uint32_t small, std::uint32_t large) const {
    const std::uint64_t* one = words_of(small);
    const std::uint64_t* other = words_of(large);
    for (std::uint32_t i = 0; i < words_; ++i)
      if ((one[i] & ~other[i]) != 0) return false;
    return true;
  }
  bool has(std::uint32_t set, std::uint32_t unit) const {
    return (words_of(set)[unit / 64] >> unit % 64 & 1U) != 0;
  }
  /// The units of `large` that are not in `small`, ascending.
  std::vector<std::uint32_t> between(std::uint32_t small, std::uint32_t large) const;

 private:
  const std::uint64_t* words_of(std::uint32_t set) const {
    return bits_.data() + std::size_t{set} * words_;
  }

  bool collect_all(const UnitGraph& graph, const std::vector<UnitOrder>& orders, std::size_t most);
  void collect_some(const UnitGraph& graph, const std::vector<UnitOrder>& orders,
                    std::size_t most_of_size);
  template <typename Entries>
  void keep(const Entries& entries);  ///< Those of the next size.

  std::uint32_t words_ = 0;  ///< Of a set.
  std::vector<std::uint64_t> bits_;
  std::vector<std::uint32_t> size_;
  std::vector<double> crossing_;
  bool are_all_ = false;
};

}  // namespace spillway::layer_order
