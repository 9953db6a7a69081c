#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "spillway/base/transfer_rate.h"
#include "spillway/planner/schedule/schedule_names.h"

namespace spillway::planner_schedule {

/// Costs of one stage for one micro-batch. A full backward takes both of its halves.
struct StageCosts {
  double forward_seconds = 0.0;
  double input_gradient_seconds = 0.0;
  double weight_gradient_seconds = 0.0;
  double recompute_seconds = 0.0;
  double step_seconds = 0.0;
  Bytes stash;     ///< Kept by a forward for its backward, on the device.
  Bytes swapped;   ///< Besides: leaves beside the forward, and comes back beside the backward.
  Bytes boundary;  ///< Output activation, and as large the gradient that comes back for it.
  Bytes weights;   ///< One version of the parameters.
  Bytes gradients;
  Bytes optimizer_state;  ///< Where the stage is stepped.
  Bytes update_peak;      ///< Taken by a step while it runs.
};

/// Tells whether some stage swaps a part of its stashes by itself.
bool swaps_parts(const std::vector<StageCosts>& stages);

/// Returns the seconds of an action on its stage, without stalls.
double seconds_of(const StageCosts& stage, ActionKind kind);

/// A size as rates divide it.
inline double count_of(Bytes size) { return static_cast<double>(size.count()); }

/// A link that the sums of neighbouring ranks pass, as a card of their node: the first `ranks`
/// of a pipeline share one, then the next ones. Sums that are under way at the same time pass it
/// one after the other, which takes as long in all as when they share it evenly.
struct SharedSums {
  std::uint32_t ranks = 1;
  /// The rate in the ring of a sum that has the link alone.
  TransferRate rate = TransferRate::unlimited();
};

/// Devices and links that a schedule runs on.
struct ScheduleCosts {
  std::vector<StageCosts> stages;
  StashShares shares;
  LinkCosts peer;          ///< From each rank to each other one, one message at a time.
  LinkCosts host;          ///< Each way of a rank's link to its host, one copy at a time.
  LinkCosts reduce;        ///< Link of each rank in a ring, with one latency per message.
  SharedSums shared_sums;  ///< Links that rings share besides.
  /// A forward, recomputation or swap-in waits for swap-outs under way that would make room.
  std::optional<Bytes> memory;
};

/// Returns costs with the same times for every stage, and nothing else.
ScheduleCosts even_costs(const Schedule& schedule, double forward_seconds,
                         double input_gradient_seconds, double weight_gradient_seconds);

/// What a rank holds from a moment on.
struct MemoryMoment {
  double seconds = 0.0;
  double stashes = 0.0;  ///< Stashes, each of one micro-batch on one stage.
  Bytes bytes;           ///< All that `StageCosts` names but boundaries.
};

struct RankTiming {
  double busy_seconds = 0.0;
  double exposed_communication_seconds = 0.0;  ///< Waiting for what was under way to it.
  double exposed_swap_seconds = 0.0;           ///< Waiting for copies, and for room.
  double first_start_seconds = 0.0;
  double last_end_seconds = 0.0;
  Bytes at_begin;  ///< Parameters and what goes with them.
  Bytes peak_memory;
  Bytes peak_weights;  ///< Of `peak_memory`, at that moment: versions of parameters.
  Bytes peak_update;   ///< The same of steps that run then.
  Bytes gradients;     ///< These two are there all the time; the rest of the peak is stashes.
  Bytes optimizer_states;
  double peak_stashes = 0.0;
  Bytes host_traffic;                ///< Stashes and weights, both ways.
  std::vector<MemoryMoment> memory;  ///< From the begin on.
};

struct ScheduleTiming {
  double step_seconds = 0.0;    ///< Until the last rank is done.
  double period_seconds = 0.0;  ///< When the next action list may begin on a rank that is done.
  double bubble = 0.0;          ///< Share of all ranks' step that is not compute.
  std::vector<RankTiming> ranks;
  std::vector<std::vector<ActionSpan>> spans;
};

/// Runs the action lists in discrete events. A rank computes one action after the other; sends,
/// copies and reductions start where they stand in its action list, when the compute before them is
/// over, and run beside what follows. Receives are posted ahead: a message leaves when its send is
/// reached. Action lists without any message get each output as soon as it is made, by the same
/// links. A forward and a backward that run as one start when both can, take the sum of their
/// times, and deliver at the end.
///
/// What a stage swaps of each stash by itself (`swapped`) leaves piece by piece from the begin of
/// its forward on, and the next forward of the rank that swaps waits for the room. It comes back
/// behind the backward before, when it is out, and its own backward ends with it at the earliest.
/// These copies pass the host link like those of actions. Room for pieces is not counted.
///
/// Throws PlanError for action lists that stand still or make no sense, with the action at which
/// they do, and ConfigError for costs that are negative, not finite, or not of these stages.
ScheduleTiming time_schedule(const Schedule& schedule, const ScheduleCosts& costs);

}  // namespace spillway::planner_schedule
