#pragma once

#include <algorithm>

#include "plain_figures.h"
#include "stage_state.h"

namespace spillway::planner {

/// The bytes that cross the two ends of a stage's layers, and in how many directions it is sent
/// there.
struct StageEnds {
  double into = 0.0;  ///< Bytes, each tensor once.
  double out = 0.0;
  double ways_into = 2.0;
  double ways_out = 2.0;
};

/// Adds what messages take of the stage's time and links.
inline void add_transfers(SegmentLoad& load, const StageConstants& stage, const StageEnds& ends,
                          const PartitionProblem& problem) {
  // Where there is no link its costs are 0.
  const double before = stage.before.fixed_seconds + ends.into * stage.before.seconds_per_byte;
  const double behind = stage.behind.fixed_seconds + ends.out * stage.behind.seconds_per_byte;
  if (problem.transfers_hide)
    load.link_seconds = std::max(before, behind);
  else
    load.seconds += before * ends.ways_into + behind * ends.ways_out;
}

/// The least time at which recomputation of the layers' items and the link get the excess away.
/// `items` are an ItemStretch, or have a `take` and a `slowdown` like it.
template <typename Items>
double reduced_seconds(const Items& items, const SegmentLoad& load, double excess, double rate) {
  const double start = load.busy_seconds();
  const auto seconds_with = [&](double recomputed) {
    return std::max(start, load.seconds + recomputed * items.slowdown);
  };
  const auto away = [&](const SumPair& sum) { return sum.b + seconds_with(sum.a) * rate; };
  if (away({}) >= excess) return start;
  SumPair next;
  bool has_next = false;
  const SumPair sum =
      items.take([&](const SumPair& taken) { return away(taken) < excess; }, next, has_next);
  if (!has_next) {
    return rate > 0.0 ? std::max(start, (excess - sum.b) / rate) : kNever;
  }
  const double missing = excess - away(sum);  // Which the next item brings, or a part of it.
  const double until = load.seconds + sum.a * items.slowdown;
  if (next.a == 0.0) return std::max(start, until);
  const double longer = next.a * items.slowdown;
  // Time that passes anyway costs nothing, and is counted in `away` already.
  const double idle = std::clamp((start - until) / longer, 0.0, 1.0);
  if (idle * next.b >= missing) return start;
  const double beyond = (missing - idle * next.b) / (next.b + longer * rate);
  return std::max(start, until + (idle + beyond) * longer);
}

}  // namespace spillway::planner
