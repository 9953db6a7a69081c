#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "spillway/base/transfer_rate.h"
#include "spillway/planner/partition/model_chain.h"
#include "spillway/schedule/held_counts.h"

namespace spillway::partition {

/// The seconds of what is impossible.
inline constexpr double kNever = std::numeric_limits<double>::infinity();
inline constexpr Bytes kNoLimit{std::numeric_limits<std::uint64_t>::max()};

using schedule::HeldCounts;

/// The device that runs one stage, and what the schedule has it hold.
struct StageDevice {
  double slowdown = 1.0;  ///< Times of the layers are multiplied by this.
  Bytes memory = kNoLimit;
  Bytes reserved{};  ///< Bytes of the memory for contexts and buffers; counts in every figure.
  TransferRate swap_rate{};  ///< Of the slower direction while both run; none: nothing swaps.
  HeldCounts held{};
};

/// The chain to cut, and the devices and links to cut it for.
struct PartitionProblem {
  ModelChain chain;
  std::vector<StageDevice> devices;  ///< One per stage, in the order of the pipeline.
  /// From a stage to the next one, with as much in each direction: one fewer than stages, or none
  /// where transfers are free.
  std::vector<LinkCosts> links;
  /// Transfers between stages run beside the layers, and bound the step as a resource of their own.
  /// Otherwise a stage waits for all it receives and sends.
  bool transfers_hide = true;
};

/// Throws ConfigError with what is wrong and what to do: what check(ModelChain) refuses, senseless
/// devices, counts and links, more stages than layers. Layers too large for any device are found
/// by `SegmentCosts`.
void check(const PartitionProblem& problem);

/// Tells whether some device has a link to swap to.
bool can_swap(const PartitionProblem& problem);

/// `chunks` stages for each device, as interleaved schedules run them: stage q is on device q mod
/// the number of devices and gets an equal share of its memory. Reserved bytes and the largest
/// working peak are there once, whatever runs: they come before the shares, and count as reserved
/// with each stage, whose layers have no working peaks then. Times stay those of one stage: a
/// device takes `chunks` times as long per micro-batch, and its links carry as much as `chunks`
/// stages need in that, so that plans for the stages hold for the devices. What stages hold is that
/// of their device. The first stage of each further round is fed by the last device through a copy
/// of the first link.
PartitionProblem interleaved(const PartitionProblem& problem, std::uint32_t chunks);

}  // namespace spillway::partition
