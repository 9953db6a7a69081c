#pragma once

#include <compare>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::schedule {

/// Micro-batch of actions that concern a stage as a whole.
inline constexpr std::uint32_t kNoMicroBatch = static_cast<std::uint32_t>(-1);

/// Kinds of actions of a rank. A full backward is the input gradient and the weight gradient in
/// one.
enum class ActionKind : std::uint8_t {
  kForward,
  kBackward,
  kInputGradient,
  kWeightGradient,
  kSendForward,     ///< An activation leaves for the next stage.
  kReceiveForward,  ///< The input of this stage arrives.
  kSendBackward,    ///< The gradient of this stage's input leaves for the stage before.
  kReceiveBackward,
  kSwapOut,    ///< The stash of a micro-batch starts to leave the device.
  kSwapIn,     ///< It starts to come back.
  kRecompute,  ///< The forward kept only its input; backward needs the rest recomputed.
  kSendWeights,
  kReceiveWeights,
  kSendGradients,
  kReceiveGradients,
  kSwapOutWeights,  ///< A copy of the parameters leaves for the host; for free when unchanged.
  kSwapInWeights,
  kReduce,  ///< The gradients of a stage are summed over its copies and the data-parallel replicas.
  kStep,    ///< The optimizer updates the stage. With a micro-batch: the last one it has seen.
};

/// One entry of a rank's action list.
struct Action {
  ActionKind kind = ActionKind::kForward;
  std::uint32_t stage = 0;
  std::uint32_t micro_batch = kNoMicroBatch;  ///< Counted from 0 in each replica.
  std::uint32_t replica = 0;
  bool overlaps_next = false;  ///< This forward and the next backward run as one.

  auto operator<=>(const Action&) const = default;
};

/// Whether it occupies the device: forward, the kinds of backward, recomputation, step.
bool is_compute(ActionKind kind);
/// Forward, backward, input gradient or weight gradient.
bool is_model_compute(ActionKind kind);
/// Full backward or input gradient: what makes the gradient for the stage before.
bool makes_input_gradient(ActionKind kind);
bool is_send(ActionKind kind);
bool is_receive(ActionKind kind);
/// Whether every such action names a micro-batch. A step may, the others do not.
bool needs_micro_batch(ActionKind kind);
/// The receive that belongs to a send, and the other way round.
ActionKind counterpart(ActionKind kind);

/// As in the CSV form (see schedule_csv.h): "2F0", "r1:0SEND_F3", "1STEP".
std::string to_string(const Action& action);
std::ostream& operator<<(std::ostream& out, const Action& action);

/// Which parameters a forward, and its backward, uses.
enum class WeightRule : std::uint8_t {
  kNewest,    ///< Those after the last step in the action list; backward uses the same.
  kPrevious,  ///< Those one update older than what its batch of micro-batches could see at best.
};

/// Action lists of all ranks of a pipeline: for one update, or, without a flush, for many.
///
/// A replica is a pass over the whole model by micro-batches of its own. Replicas of one placement
/// use the same copy of the parameters. A schedule fixes the order of actions on each rank and no
/// times: a rank waits until the inputs of its next action are there.
struct Schedule {
  std::uint32_t rank_count() const { return static_cast<std::uint32_t>(ranks.size()); }
  std::uint32_t replica_count() const { return static_cast<std::uint32_t>(placement.size()); }
  /// Forwards of one stage in all replicas together.
  std::uint64_t all_micro_batches() const { return std::uint64_t{micro_batches} * replica_count(); }
  std::uint32_t rank_of(std::uint32_t replica, std::uint32_t stage) const {
    return placement[replica][stage];
  }

  std::string name;
  std::uint32_t stages = 0;
  std::uint32_t micro_batches = 0;                    ///< Micro-batches of each replica.
  std::vector<std::vector<std::uint32_t>> placement;  ///< The rank by replica and stage.
  std::vector<std::vector<Action>> ranks;             ///< Action list of each rank.
  WeightRule weight_rule = WeightRule::kNewest;
  std::uint32_t data_parallel =
      1;  ///< Data-parallel replicas of this pipeline, which share each reduction.
  /// Number of leading stages that train nothing. No gradient goes to them, so their backward waits
  /// for nothing.
  std::uint32_t untrained_stages = 0;
};

/// Whether some action list has an action of this kind.
bool has_action(const Schedule& schedule, ActionKind kind);

/// Throws PlanError for a schedule in which an index points outside, with the action at fault. All
/// functions on schedules begin with it; nothing more is promised about one that passes.
void check_shape(const Schedule& schedule);

/// Stages on rank 0, 1, … and, with more stages than ranks, from rank 0 again.
std::vector<std::uint32_t> round_placement(std::uint32_t ranks, std::uint32_t stages);
/// Stage s and stage 2·ranks − 1 − s on rank s.
std::vector<std::uint32_t> folded_placement(std::uint32_t ranks);
/// Stage s on rank ranks − 1 − s.
std::vector<std::uint32_t> reversed_placement(std::uint32_t ranks);

}  // namespace spillway::schedule
