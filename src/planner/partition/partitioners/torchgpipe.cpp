#include <algorithm>

#include "neighbour_moves.h"
#include "spillway/planner/partition/partitioners.h"

namespace spillway::planner {
namespace {

/// Of all moves and stages together, far more than chains of some thousand layers take.
constexpr std::uint64_t kMostSteps = 200'000'000;

/// Blocks of a sequence whose sizes differ by no more than one element: the largest block stays the
/// one to beat while elements move, border by border, towards the smallest one next to it.
class BlockPartition {
 public:
  explicit BlockPartition(const SegmentCosts& costs) : costs_(costs), stages_(costs.stages()) {
    for (std::uint32_t k = 0; k < stages_; ++k) cuts_.push_back(costs.units() / stages_ * k);
    cuts_.push_back(costs.units());
    for (std::uint32_t unit = 0; unit < costs.units(); ++unit)
      largest_unit_ = std::max(largest_unit_, costs.layer_seconds(unit, unit + 1));
  }

  Cuts run() {
    std::uint32_t worst = largest();
    for (std::uint64_t step = 0; step < kMostSteps; step += stages_) {
      const std::uint32_t least = smallest_near(worst);
      if (size(worst) <= size(least) + largest_unit_) break;
      // The block beside the smallest one, on the way to the largest, gives it an element.
      const std::uint32_t giver = worst < least ? least - 1 : least + 1;
      if (cuts_[giver] == cuts_[giver + 1]) break;
      if (worst < least) {
        --cuts_[least];
      } else {
        ++cuts_[giver];
      }
      if (giver == worst) worst = largest();
    }
    return cuts_;
  }

 private:
  double size(std::uint32_t block) const {
    return costs_.layer_seconds(cuts_[block], cuts_[block + 1]);
  }

  std::uint32_t largest() const {
    std::uint32_t found = 0;
    for (std::uint32_t k = 1; k < stages_; ++k)
      if (size(k) > size(found)) found = k;
    return found;
  }

  std::uint32_t smallest_near(std::uint32_t worst) const {
    const auto distance = [&](std::uint32_t k) { return k > worst ? k - worst : worst - k; };
    std::uint32_t found = worst;
    for (std::uint32_t k = 0; k < stages_; ++k) {
      const double one = size(k);
      const double other = size(found);
      if (one < other || (one == other && distance(k) < distance(found))) found = k;
    }
    return found;
  }

  const SegmentCosts& costs_;
  const std::uint32_t stages_;
  Cuts cuts_;
  double largest_unit_ = 0.0;
};

Cuts cut_torchgpipe(const SegmentCosts& costs) {
  return without_empty_stages(BlockPartition(costs).run());
}

}  // namespace

extern const Partitioner kTorchgpipePartitioner{
    "torchgpipe", "block partition of times: no two stages differ by more than a layer",
    "Bárány, Grinberg, Block partitions of sequences, arXiv 1308.2452; repository "
    "kakaobrain/torchgpipe (balance by time)",
    Reading::kAsPublished, cut_torchgpipe};

}  // namespace spillway::planner
