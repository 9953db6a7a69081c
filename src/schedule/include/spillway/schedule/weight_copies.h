#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "spillway/schedule/schedule.h"

namespace spillway::schedule {

/// The distinct copies of the parameters: one per rank and stage that are placed together, however
/// many replicas use it.
class WeightCopies {
 public:
  struct Copy {
    std::uint32_t rank = 0;
    std::uint32_t stage = 0;
  };

  explicit WeightCopies(const Schedule& schedule);

  std::size_t size() const { return copies_.size(); }
  const Copy& operator[](std::size_t copy) const { return copies_[copy]; }
  /// The copy of `stage` on `rank`, which must be there.
  std::uint32_t at(std::uint32_t rank, std::uint32_t stage) const;
  /// Ranks with a copy of the stage, in the order of the replicas that brought them.
  const std::vector<std::uint32_t>& holders(std::uint32_t stage) const { return holders_[stage]; }
  /// Those of them that step the stage, and therefore reduce its gradients; all, when none does.
  const std::vector<std::uint32_t>& reducers(std::uint32_t stage) const { return reducers_[stage]; }
  /// Whether a copy is one of them.
  bool is_reducer(std::uint32_t copy) const { return is_reducer_[copy]; }

 private:
  std::vector<Copy> copies_;
  std::vector<std::vector<std::uint32_t>> holders_;
  std::vector<std::vector<std::uint32_t>> reducers_;
  std::vector<bool> is_reducer_;
  std::unordered_map<std::uint64_t, std::uint32_t> index_;
};

/// Which copies are on their device when the action lists begin. One whose first move brings it
/// (from the host, from its owner) is not.
std::vector<bool> resident_at_start(const Schedule& schedule, const WeightCopies& copies);

/// How many copies an action brings to the device (1), or takes off it (-1), at once where it
/// stands.
int move_weights(const Action& action, std::uint32_t copy, std::vector<bool>& is_resident);

}  // namespace spillway::schedule
