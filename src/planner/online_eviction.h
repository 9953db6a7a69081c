#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "replay_walk.h"
#include "spillway/planner/recomputation.h"
#include "spillway/planner/swap_plan.h"

namespace spillway::planner {

/// Whether a value that the program has freed stays, once it was recomputed for others.
enum class FreedValues : std::uint8_t {
  kStay,   ///< Until it is evicted.
  kLeave,  ///< Behind the operator that asked for them.
};

/// Runs a step under a budget as an on-line recomputation does: when room is missing, the value
/// with the least score goes, and what an operator lacks is recomputed first. The score is that
/// of DTR with equivalence classes: compute time of the value and of the evicted ones around it,
/// over its pages and the time since its last use.
class OnlineEviction {
 public:
  /// Keeps references.
  OnlineEviction(const StepTape& tape, const Recomputation& all, std::uint32_t budget_pages,
                 FreedValues freed, const StopCheck& should_stop);

  /// What ran again, as far as it went: stops evicting when nothing helps, when it runs in circles
  /// and when told to.
  std::vector<Replay> run();

 private:
  struct State {
    bool is_present = false;
    std::uint32_t version = 0;  ///< In-place writes that what is present holds.
    std::uint32_t pins = 0;
    double used_at = 0.0;
    double compute = 0.0;  ///< Seconds of the operators that have made it so far.
    std::uint32_t evicted_class = 0;
    OpIndex droppable_until = 0;  ///< Cached answer of `can_drop` for this next use.
    bool is_droppable = false;
  };

  /// An operator whose inputs are brought in, one after the other.
  struct Provision {
    OpIndex op = 0;
    std::size_t use = 0;        ///< The input whose turn it is.
    bool is_restoring = false;  ///< Operators run again for it.
    std::uint32_t maker = 0;    ///< Of those that have made it, the next one.
  };

  void provide_for(OpIndex op);
  std::optional<OpIndex> next_maker(Provision& provision);
  bool begin_restoring(ValueIndex value, std::uint32_t version);
  bool is_to_leave(ValueIndex value) const;
  void run_op(OpIndex op);
  void replay(OpIndex op);
  void make_room(std::uint32_t pages);
  bool evict_best();
  bool is_evictable(ValueIndex value);
  double score(ValueIndex value);
  void evict(ValueIndex value);
  void enter(ValueIndex value);
  void forget_dead(OpIndex op);
  void leave_gap(ValueIndex value);
  template <typename Visit>
  void for_each_neighbour(ValueIndex value, Visit visit) const;
  std::uint32_t root(std::uint32_t cls);

  const StepTape& tape_;
  const Recomputation& all_;
  ReplayWalk walk_{all_};
  const std::uint32_t budget_;
  const FreedValues freed_;
  const StopCheck& should_stop_;
  std::vector<State> states_;
  std::vector<std::uint32_t> found_version_;  ///< Per use.
  std::vector<std::vector<OpIndex>> makers_;  ///< Per value: birth, then writes.
  const PerOp births_;
  const PerOp deaths_;
  std::vector<std::vector<ValueIndex>> neighbours_;  ///< Values made from it or that it is made of.
  /// What the step makes and is there, in the order in which it came, with gaps (kNoValue).
  std::vector<ValueIndex> resident_;
  std::size_t gaps_ = 0;
  std::vector<std::size_t> place_;    ///< Per value that is among them.
  std::vector<ValueIndex> visitors_;  ///< Freed ones that are to leave behind this operator.
  std::vector<std::uint32_t> parent_;
  std::vector<double> class_cost_;
  std::vector<std::uint32_t> seen_;
  std::vector<Replay> replays_;
  OpIndex now_ = 0;
  std::uint64_t held_ = 0;
  double clock_ = 0.0;
  bool is_stuck_ = false;
};

}  // namespace spillway::planner
