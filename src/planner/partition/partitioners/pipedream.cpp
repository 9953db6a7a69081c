#include "bottleneck_search.h"
#include "spillway/planner/partition/partitioners.h"

namespace spillway::partition {
namespace {

/// The slower of a stage and of the transfers at its begin, activations and gradients one after the
/// other. No memory.
class StageOrTransfer : public SegmentGoal {
 public:
  explicit StageOrTransfer(const SegmentCosts& costs) : costs_(costs) {
    for (std::uint32_t unit = 0; unit <= costs.units(); ++unit)
      largest_crossing_ = std::max(largest_crossing_, costs.crossing_bytes(unit));
  }

  double cost(Segment segment, Borders borders) const override {
    const double seconds = costs_.layer_seconds(segment.first, segment.end);
    const auto& links = costs_.problem().links;
    if (borders == Borders::kNone || segment.stage == 0 || links.empty()) return seconds;
    const double bytes =
        borders == Borders::kLargest ? largest_crossing_ : costs_.crossing_bytes(segment.first);
    return std::max(seconds, links[segment.stage - 1].rate.seconds_for(2.0 * bytes));
  }
  bool is_monotone() const override { return false; }

 private:
  const SegmentCosts& costs_;
  double largest_crossing_ = 0.0;
};

/// Their dynamic program over layers and machines finds the same least bottleneck.
std::optional<Cuts> cut_pipedream(const SegmentCosts& costs) {
  return least_bottleneck(StageOrTransfer(costs), whole(costs))->cuts;
}

}  // namespace

extern const Partitioner kPipedream{
    "pipedream", "least of the slowest stage or transfer, without memory or replication",
    "Harlap et al., PipeDream, SOSP 2019, arXiv 1806.03377; repository msr-fiddle/pipedream",
    Reading::kAsPublished, cut_pipedream};

}  // namespace spillway::partition
