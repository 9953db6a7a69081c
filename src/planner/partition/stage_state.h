#pragma once

#include <vector>

#include "peak_table.h"
#include "ranked_sums.h"
#include "spillway/planner/partition/segment_costs.h"

namespace spillway::planner {

/// What units before a cut add up to. One struct, since all are asked for together.
struct UnitSums {
  double seconds = 0.0;
  double fixed = 0.0;      ///< Static bytes that do not depend on the versions, of one copy.
  double versioned = 0.0;  ///< Static bytes per version of the weights.
  double stash = 0.0;
  double crossing = 0.0;    ///< Not a sum: bytes over the cut here.
  double untrained = 0.0;   ///< Not a sum: those of them that only leading frozen layers read.
  std::uint32_t items = 0;  ///< Recompute items.
};

/// What a stage costs whatever it runs.
struct StageConstants {
  double slowdown = 1.0;
  double in_flight = 1.0;
  double weight_versions = 1.0;
  double state_copies = 1.0;
  double reserved = 0.0;
  double memory = kNoLink;
  double swap_rate = 0.0;    ///< Bytes per second of its swap link; 0 where there is none.
  StageLink before, behind;  ///< Free where there is none.
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
  std::vector<double> buffers;          ///< Running; empty where no layer has any.
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
  void add_items(const std::vector<SumPair>& steps);
  void add_borders();
  void add_ties();
  std::uint32_t unit_of(LayerIndex layer) const { return unit_of_layer_[layer]; }

  std::vector<std::uint32_t> unit_of_layer_;
  LayerIndex lead_ = 0;  ///< Layers that lead frozen.
};

}  // namespace spillway::planner
