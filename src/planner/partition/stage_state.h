#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "layer_figures.h"
#include "plain_figures.h"
#include "ranked_sums.h"
#include "spillway/planner/partition/segment_costs.h"

namespace spillway::partition {

/// The largest of any stretch, in O(1) from O(n log n) figures.
class PeakTable {
 public:
  PeakTable() = default;
  explicit PeakTable(std::vector<double> values) {
    // Where nothing has a peak there is nothing to look up.
    if (std::all_of(values.begin(), values.end(), [](double each) { return each == 0.0; })) return;
    rows_.push_back(std::move(values));
    for (std::size_t width = 2; width <= rows_[0].size(); width *= 2) {
      const std::vector<double>& half = rows_.back();
      std::vector<double> row(rows_[0].size() - width + 1);
      for (std::size_t i = 0; i < row.size(); ++i) row[i] = std::max(half[i], half[i + width / 2]);
      rows_.push_back(std::move(row));
    }
  }

  /// Returns the largest value of [first, end), which is not empty.
  double largest(std::uint32_t first, std::uint32_t end) const {
    if (rows_.empty()) return 0.0;
    const auto row = static_cast<std::size_t>(std::bit_width(end - first) - 1);
    return std::max(rows_[row][first], rows_[row][end - (std::size_t{1} << row)]);
  }

 private:
  std::vector<std::vector<double>> rows_;  ///< Row r: of 2^r neighbours from each place on.
};

/// What units before a cut add up to. One struct, since all are asked for together.
struct UnitSums : UnitLoad {
  double crossing = 0.0;    ///< Not a sum: bytes over the cut here.
  double untrained = 0.0;   ///< Not a sum: those of them that only leading frozen layers read.
  std::uint32_t items = 0;  ///< Recompute items.
};

/// What a stage costs whatever it runs.
struct StageConstants {
  double slowdown = 1.0;
  HeldCounts held{};
  double reserved = 0.0;
  double memory = kNever;
  TransferRate swap_rate;
  LinkCosts before, behind;  ///< Free where there is none.
};

/// Returns, for each stage, what its device and the links at its ends say.
std::vector<StageConstants> stage_constants(const PartitionProblem& problem);

/// Points (start, end) with weights: what starts before some cut and ends before another one.
class SpanSums {
 public:
  struct Span {
    std::uint32_t start = 0;
    std::uint32_t end = 0;
    SumPair weight;
  };
  SpanSums() = default;
  SpanSums(std::vector<Span> spans, std::uint32_t units);

  bool is_empty() const { return sums_.is_empty(); }
  /// Returns the sums of those of the spans [first, last), in the order of their starts, that end
  /// before unit `end`.
  SumPair ending_before(std::uint32_t first, std::uint32_t last, std::uint32_t end) const {
    return sums_.below(first, last, ends_below_[end]);
  }
  /// How many of the spans start before that unit.
  std::uint32_t starting_before(std::uint32_t unit) const { return starts_below_[unit]; }
  const SumPair& total_before(std::uint32_t spans) const { return totals_[spans]; }
  std::uint32_t count() const { return static_cast<std::uint32_t>(totals_.size()) - 1; }

 private:
  RankedSums sums_;
  std::vector<std::uint32_t> starts_below_, ends_below_;  ///< By unit.
  std::vector<SumPair> totals_{SumPair{}};
};

/// The recompute items of a segment.
struct ItemStretch {
  const RankedSums* items = nullptr;
  std::uint32_t first = 0;
  std::uint32_t end = 0;
  double slowdown = 1.0;

  template <typename Fits>
  SumPair take(const Fits& fits, SumPair& next, bool& has_next) const {
    return items->take(first, end, fits, next, has_next);
  }
};

struct SegmentCosts::State {
  explicit State(PartitionProblem given);

  ItemStretch stretch(Segment segment) const;
  /// The most stash per micro-batch that recomputation saves in so much time.
  double saved_bytes(Segment segment, double slack) const;
  /// Static bytes of units: those that do not depend on the versions, those of each version.
  SumPair static_pair_of(std::uint32_t first, std::uint32_t end) const;
  /// Directions in which a cut sends: behind frozen layers alone no gradient returns.
  double directions(std::uint32_t unit) const {
    return unit > 0 && unit <= last_forward_cut ? 1.0 : 2.0;
  }

  PartitionProblem problem;
  std::vector<LayerIndex> first_layer;  ///< By unit, and behind the last one.
  std::vector<UnitSums> before;         ///< By unit, and behind the last one.
  std::vector<double> parameters;       ///< Running.
  std::vector<StageConstants> stages;
  PeakTable peaks;
  RankedSums items;
  /// Spans of border tensors from one reader that keeps them to the next, over two cuts or more.
  SpanSums long_pieces;
  SpanSums tied;  ///< Neighbouring pairs; what the second does not need besides the first.
  SpanSums tied_parameters;  ///< The same, of the parameters alone.
  double largest_crossing = 0.0;
  double largest_relayed = 0.0;
  std::uint32_t last_forward_cut = 0;  ///< Unit up to which all layers before it lead frozen.

 private:
  void make_units();
  void add_units();
  void add_borders();
  void add_ties();
  std::uint32_t unit_of(LayerIndex layer) const { return unit_of_layer_[layer]; }

  std::vector<std::uint32_t> unit_of_layer_;
  LayerIndex lead_ = 0;  ///< Layers that lead frozen.
};

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
  const auto over = [](const LinkCosts& link, double bytes) {
    return link.latency_seconds + link.rate.seconds_for(bytes);
  };
  const double before = over(stage.before, ends.into);
  const double behind = over(stage.behind, ends.out);
  if (problem.transfers_hide)
    load.link_seconds = std::max(before, behind);
  else
    load.seconds += before * ends.ways_into + behind * ends.ways_out;
}

/// The least time at which recomputation of the layers' items and the link get the excess away.
/// `items` are an ItemStretch, or have a `take` and a `slowdown` like it.
template <typename Items>
double reduced_seconds(const Items& items, const SegmentLoad& load, double excess,
                       TransferRate swap_rate) {
  const double rate = swap_rate.bytes_per_second();
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

}  // namespace spillway::partition
