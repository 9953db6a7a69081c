#include "spillway/planner/partition/partitioners.h"

namespace spillway::partition {
namespace {

std::optional<Cuts> cut_even(const SegmentCosts& costs) {
  Cuts cuts;
  for (std::uint64_t k = 0; k <= costs.stages(); ++k)
    cuts.push_back(static_cast<std::uint32_t>(k * costs.units() / costs.stages()));
  return cuts;
}

}  // namespace

extern const Partitioner kEven{"even", "as many layers on each stage",
                               "default of Megatron-LM, repository NVIDIA/Megatron-LM",
                               Reading::kAsPublished, cut_even};

}  // namespace spillway::partition
