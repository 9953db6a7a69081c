#include <algorithm>

#include "neighbour_moves.h"
#include "spillway/planner/partition/partitioners.h"

namespace spillway::partition {
namespace {

/// Halves the stages, looks for the cut between the one that balances times and the one that
/// balances memory, and goes on in both halves. A half counts as one device: the mean of its
/// stages.
class HalvedStages {
 public:
  explicit HalvedStages(const SegmentCosts& costs)
      : costs_(costs), cuts_(costs.stages() + 1, costs.units()) {
    cuts_[0] = 0;
  }

  Cuts run() {
    halve(0, costs_.stages());
    return cuts_;
  }

 private:
  struct Half {
    double seconds = 0.0;
    double bytes = 0.0;
    double cost = 0.0;
  };

  /// Units [first, end) on stages [low, high): means per stage. One device with all their memory
  /// takes as long for its swaps and recomputation as all of them together.
  Half half(std::uint32_t first, std::uint32_t end, std::uint32_t low, std::uint32_t high) const {
    const double count = high - low;
    Half mean;
    for (std::uint32_t stage = low; stage < high; ++stage) {
      const Segment segment{first, end, stage};
      const SegmentLoad load = costs_.load(segment);
      const double device = count * costs_.device_bytes(stage);
      mean.seconds += load.seconds / count / count;
      mean.bytes += load.raw_bytes() / count / count;
      mean.cost += reduced_score(costs_, segment, device) / count / count;
    }
    return mean;
  }

  void halve(std::uint32_t low, std::uint32_t high) {
    if (high - low < 2) return;
    const std::uint32_t middle = low + (high - low) / 2;
    // One unit at least is for each stage on either side.
    const std::uint32_t from = cuts_[low] + (middle - low);
    const std::uint32_t to = cuts_[high] - (high - middle);
    const auto left = [&](std::uint32_t cut) { return half(cuts_[low], cut, low, middle); };
    const auto right = [&](std::uint32_t cut) { return half(cut, cuts_[high], middle, high); };
    // Both figures grow on the left and fall on the right: the cuts where they meet.
    const auto meeting = [&](const auto& figure) {
      std::uint32_t first = from;
      std::uint32_t last = to;
      while (first < last) {
        const std::uint32_t cut = first + (last - first) / 2;
        figure(left(cut)) < figure(right(cut)) ? first = cut + 1 : last = cut;
      }
      const auto worse = [&](std::uint32_t cut) {
        return std::max(figure(left(cut)), figure(right(cut)));
      };
      return first > from && worse(first - 1) < worse(first) ? first - 1 : first;
    };
    const std::uint32_t by_time = meeting([](const Half& each) { return each.seconds; });
    const std::uint32_t by_memory = meeting([](const Half& each) { return each.bytes; });
    std::uint32_t best = by_time;
    double least = std::max(left(best).cost, right(best).cost);
    for (std::uint32_t cut = std::min(by_time, by_memory); cut <= std::max(by_time, by_memory);
         ++cut) {
      const double cost = std::max(left(cut).cost, right(cut).cost);
      if (cost < least) least = cost, best = cut;
    }
    cuts_[middle] = best;
    halve(low, middle);
    halve(middle, high);
  }

  const SegmentCosts& costs_;
  Cuts cuts_;
};

std::optional<Cuts> cut_dawnpiper(const SegmentCosts& costs) { return HalvedStages(costs).run(); }

}  // namespace

extern const Partitioner kDawnpiper{
    "dawnpiper", "halves the stages, cuts between the balances of time and of memory",
    "Peng et al., DawnPiper, arXiv 2505.05856; our reading of its theorem, not confirmed",
    Reading::kInferred, cut_dawnpiper};

}  // namespace spillway::partition
