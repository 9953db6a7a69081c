#include <algorithm>

#include "bottleneck_search.h"
#include "layer_figures.h"
#include "ranked_sums.h"
#include "spillway/planner/partition/partitioners.h"

namespace spillway::partition {
namespace {

/// What its program says a stage takes: layers are recomputed whole, in the order of bytes per
/// second, until the stage fits; transfers in both directions are added. Of a layer's points it
/// knows the one that saves most. Swaps it does not know.
class PiperGoal : public SegmentGoal {
 public:
  explicit PiperGoal(const SegmentCosts& costs) : costs_(costs) {
    const ModelChain& chain = costs.problem().chain;
    const LayerIndex lead = leading_frozen_layers(chain);
    std::vector<SumPair> items;
    for (std::uint32_t unit = 0; unit < costs.units(); ++unit) {
      before_.push_back(static_cast<std::uint32_t>(items.size()));
      for (LayerIndex i = costs.first_layer(unit); i < costs.first_layer(unit + 1); ++i) {
        const SumPair point = useful_points(chain.layers[i]).back();
        if (i >= lead && point.b > 0.0) items.push_back(point);
      }
      largest_crossing_ = std::max(largest_crossing_, costs.crossing_bytes(unit));
    }
    before_.push_back(static_cast<std::uint32_t>(items.size()));
    for (const SumPair& item : items) longest_ = std::max(longest_, item.a);
    items_ = sums_by_density(items);
  }

  /// Of kNone and kLargest: with the last layer recomputed in part, and one layer more than that,
  /// which encloses what whole layers take.
  double cost(Segment segment, Borders borders) const override {
    const SegmentLoad load = costs_.load(segment, borders);
    const double slowdown = costs_.problem().devices[segment.stage].slowdown;
    const double seconds = costs_.layer_seconds(segment.first, segment.end) * slowdown +
                           transfer_seconds(segment, borders);
    const double excess = load.excess_bytes(costs_.device_bytes(segment.stage));
    if (excess <= 0.0) return seconds;
    if (excess == kNever) return kNever;
    SumPair next;
    bool has_next = false;
    const SumPair sum = items_.take(
        before_[segment.first], before_[segment.end],
        [&](const SumPair& taken) { return taken.b < excess; }, next, has_next);
    if (!has_next) return kNever;
    if (borders == Borders::kExact) return seconds + (sum.a + next.a) * slowdown;
    const double part = sum.a + next.a * (excess - sum.b) / next.b;
    return seconds + (part + (borders == Borders::kLargest ? longest_ : 0.0)) * slowdown;
  }
  bool is_monotone() const override { return false; }

 private:
  double transfer_seconds(Segment segment, Borders borders) const {
    const auto& links = costs_.problem().links;
    if (links.empty() || borders == Borders::kNone) return 0.0;
    const auto over = [&](std::uint32_t link, std::uint32_t cut) {
      const double bytes =
          borders == Borders::kLargest ? largest_crossing_ : costs_.crossing_bytes(cut);
      return links[link].rate.seconds_for(2.0 * bytes);
    };
    double seconds = 0.0;
    if (segment.stage > 0) seconds += over(segment.stage - 1, segment.first);
    if (segment.stage < links.size()) seconds += over(segment.stage, segment.end);
    return seconds;
  }

  const SegmentCosts& costs_;
  RankedSums items_;                   ///< Of layers: seconds, bytes saved; by bytes per second.
  std::vector<std::uint32_t> before_;  ///< Items before a unit, and behind the last one.
  double largest_crossing_ = 0.0;
  double longest_ = 0.0;
};

/// The optimum of its program for a chain without replication or tensor parallelism. Theirs is a
/// table over layers and stages; reachable cuts find the same least bottleneck.
std::optional<Cuts> cut_piper(const SegmentCosts& costs) {
  auto solved = least_bottleneck(PiperGoal(costs), whole(costs));
  if (!solved) return std::nullopt;
  return std::move(solved->cuts);
}

}  // namespace

extern const Partitioner kPiper{
    "piper",
    "least time within memory, layers recomputed whole; knows the stage, no swaps",
    "Tarnawski et al., Piper, NeurIPS 2021; repository msr-fiddle/piper",
    Reading::kAsPublished,
    cut_piper,
    /*sees_first_stage_alone=*/false,
    /*draws_cuts=*/false,
    MemoryReduction::kRecompute};

}  // namespace spillway::partition
