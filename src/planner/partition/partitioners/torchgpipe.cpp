#include <algorithm>
#include <vector>

#include "neighbour_moves.h"
#include "plain_figures.h"
#include "spillway/planner/partition/partitioners.h"

namespace spillway::partition {
namespace {

/// Of all moves and stages together, far more than chains of some thousand layers take.
constexpr std::uint64_t kMostSteps = 200'000'000;

/// Blocks of a sequence, normalised to 0 for its least element and 1 for its largest, whose sizes
/// differ by at most 1: the largest block stays the one to beat while elements move, border by
/// border, towards the smallest one. Of equal blocks the last is the largest and the first the
/// smallest.
class BlockPartition {
 public:
  explicit BlockPartition(const SegmentCosts& costs) : units_(costs.units()) {
    const std::uint32_t stages = costs.stages();
    for (std::uint32_t k = 0; k < stages; ++k) cuts_.push_back(units_ / stages * k);
    cuts_.push_back(units_);
    double least = kNever;
    double most = 0.0;
    for (std::uint32_t unit = 0; unit < units_; ++unit) {
      const double seconds = costs.layer_seconds(unit, unit + 1);
      least = std::min(least, seconds);
      most = std::max(most, seconds);
    }
    for (std::uint32_t unit = 0; unit < units_; ++unit) {
      const double above = costs.layer_seconds(unit, unit + 1) - least;
      before_.push_back(before_.back() + (most > least ? above / (most - least) : 0.0));
    }
  }

  Cuts run() {
    std::uint32_t worst = largest();
    double most = size(worst);
    // A look for the smallest block passes all of them.
    for (std::uint64_t step = 0; step < kMostSteps; step += cuts_.size()) {
      const std::uint32_t least = smallest();
      if (most <= size(least) + 1.0) break;
      // The block beside the smallest one, on the way to the largest, gives it an element.
      const std::uint32_t giver = worst < least ? least - 1 : least + 1;
      if (worst < least) {
        --cuts_[least];
      } else {
        ++cuts_[giver];
      }
      if (giver == worst) {
        worst = largest();
        most = size(worst);
      }
    }
    return cuts_;
  }

 private:
  /// An empty block beside one of elements of size 0 may be passed over by its neighbour.
  double size(std::uint32_t block) const {
    const std::uint32_t end = std::min(cuts_[block + 1], units_);
    return cuts_[block] < end ? before_[end] - before_[cuts_[block]] : 0.0;
  }

  std::uint32_t largest() const {
    std::uint32_t found = 0;
    for (std::uint32_t k = 1; k + 1 < cuts_.size(); ++k)
      if (size(k) >= size(found)) found = k;
    return found;
  }

  std::uint32_t smallest() const {
    std::uint32_t found = 0;
    for (std::uint32_t k = 1; k + 1 < cuts_.size(); ++k)
      if (size(k) < size(found)) found = k;
    return found;
  }

  const std::uint32_t units_;
  Cuts cuts_;
  std::vector<double> before_{0.0};  ///< Sizes of the elements before, normalised.
};

std::optional<Cuts> cut_torchgpipe(const SegmentCosts& costs) {
  return without_empty_stages(BlockPartition(costs).run());
}

}  // namespace

extern const Partitioner kTorchgpipe{
    "torchgpipe", "block partition of times, normalised: no two stages differ by more than 1",
    "Bárány, Grinberg, Block partitions of sequences, arXiv 1308.2452; repository "
    "kakaobrain/torchgpipe (balance by time)",
    Reading::kAsPublished, cut_torchgpipe};

}  // namespace spillway::partition
