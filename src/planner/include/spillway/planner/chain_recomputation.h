#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace spillway::planner {

/// One block of a chain. Memory in slots of equal size, whatever that is; peaks hold all that is
/// resident except for the kept inputs and stashes of earlier blocks.
struct ChainCosts {
  double boundary_seconds =
      0.0;                    ///< Seconds of a rerun for its output, which the next block reads.
  double all_seconds = 0.0;   ///< Seconds of a rerun for its output and its stash.
  double last_seconds = 0.0;  ///< Seconds of a rerun for what its own backward needs.

  std::uint32_t boundary = 0;  ///< Slots of its output.
  std::uint32_t stash = 0;     ///< Slots of all that its backward and the next block need.

  std::uint32_t first_boundary_peak = 0;  ///< Peak of its first run, when only the output stays.
  std::uint32_t first_all_peak = 0;       ///< Peak of its first run, when its stash stays.
  std::uint32_t boundary_peak = 0;        ///< Peak of a rerun, without what is held meanwhile.
  std::uint32_t all_peak = 0;
  std::uint32_t last_peak = 0;
  std::uint32_t held_before_backward = 0;  ///< Slots of other values right before its backward.
  std::uint32_t backward_peak = 0;         ///< During its backward, its stash included.
};

enum class RerunFor : std::uint8_t { kBoundary, kAll, kLast };

/// A rerun of a block, right before the backward of block `before`.
struct BlockRerun {
  std::uint32_t block = 0;
  RerunFor wanted = RerunFor::kAll;
  std::uint32_t before = 0;
};

struct ChainSchedule {
  double rerun_seconds = 0.0;
  std::vector<BlockRerun> reruns;  ///< In order.
};

/// The least time in reruns with which a chain fits into so many slots, among schedules that keep
/// what they have once kept until backward has used it (persistent ones). Dynamic program of
/// Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, "Optimal checkpointing for heterogeneous
/// chains", INRIA RR-9302, arXiv 1911.13214 (rotor), with what else is resident at each point.
/// Nothing where no such schedule fits. Takes O(slots * blocks^3) time and O(slots * blocks^2)
/// memory.
std::optional<ChainSchedule> cheapest_reruns(std::span<const ChainCosts> blocks,
                                             std::uint32_t slots);

}  // namespace spillway::planner
