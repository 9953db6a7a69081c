#pragma once

#include <cstdint>
#include <vector>

#include "spillway/base/rank.h"

namespace spillway::pipeline {

/// Ranks of a job: mostly one of them, or all.
class RankSet {
 public:
  RankSet() = default;
  static RankSet one(Rank rank) { return RankSet({rank}, false); }
  static RankSet all() { return RankSet({}, true); }

  bool contains(Rank rank) const;
  bool is_all() const { return is_all_; }
  bool is_empty() const { return !is_all_ && ranks_.empty(); }
  void insert(Rank rank);
  /// The lowest; rank 0 of all. Not of an empty set.
  Rank first() const;
  /// All of them, in order, in a job of so many.
  std::vector<Rank> list(std::uint32_t ranks) const;

  bool operator==(const RankSet&) const = default;

 private:
  RankSet(std::vector<Rank> ranks, bool is_all) : ranks_(std::move(ranks)), is_all_(is_all) {}

  std::vector<Rank> ranks_;  ///< In order.
  bool is_all_ = false;
};

}  // namespace spillway::pipeline
