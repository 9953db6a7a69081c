#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "spillway/base/autograd_facts.h"
#include "spillway/base/bytes.h"
#include "spillway/base/clock.h"
#include "spillway/device/event.h"
#include "spillway/planner/swap_plan.h"
#include "spillway/profile/storage_class.h"
#include "spillway/runtime/learning/planning_options.h"
#include "spillway/runtime/recording/stall_ledger.h"
#include "spillway/runtime/recording/storage_pieces.h"
#include "spillway/swap/swap_engine.h"

namespace spillway::runtime {

using swap::kNeverUsed;
using swap::kUnknownUse;
using swap::OpClock;

class OpText;
class ProfileRecording;
class StepTraceRecorder;

/// What the runtime should do now. Lists are in order of urgency; the caller clears and reuses it.
/// A storage that is live but idle for many steps gets a next use far away, so that it goes first;
/// kNeverUsed is for those that are freed without another use and hardly worth a write.
struct Advice {
  struct WriteOut {
    PieceId piece;
    std::uint32_t pages = 0;  ///< How many pages should be out, the last ones of the range first.
    /// Of these, how many go past the host memory of the store, the first ones; absent: it has
    /// none.
    std::optional<std::uint32_t> far_pages = {};
  };
  struct NextUse {
    PieceId piece;
    OpClock at = kUnknownUse;
  };
  struct Fetch {
    PieceId piece;
    bool keeps_copy = true;  ///< False: it is written to, or freed, before it leaves again.
  };
  std::vector<NextUse> next_uses;  ///< Predictions for ranges whose last one has passed.
  /// Start writing these now; they leave when written. Pages that are out already count.
  std::vector<WriteOut> write_outs;
  std::vector<Fetch> fetches;  ///< Bring these in, in this order, as far as room allows.
  /// Room that fetches must leave for the operators from this one on; absent: as before.
  std::optional<std::uint32_t> reserve_pages;
  std::vector<PieceId> drops;  ///< Give up their bytes: they will be recomputed.
  /// The operator has to be recorded under this number: it runs again later.
  std::optional<profile::OpIndex> record_as;
  bool forgets = false;  ///< What was recorded so far is of no use any more.

  /// Empties the lists and keeps their memory.
  void clear() {
    next_uses.clear();
    write_outs.clear();
    fetches.clear();
    reserve_pages.reset();
    drops.clear();
    record_as.reset();
    forgets = false;
  }
};

/// What has been learned, for the summary and the statistics file.
struct LearnerReport {
  std::uint64_t steps = 0;           ///< Finished steps.
  std::uint64_t deviations = 0;      ///< Operators that did not match the plan being followed.
  double step_seconds_median = 0.0;  ///< Of the latest steps.
  std::uint32_t shapes = 0;          ///< Different steps that are known.
  std::uint64_t plans = 0;           ///< How often a plan was made.
  bool follows_plan = false;         ///< Whether the latest operator was part of a plan.

  /// About the plan that is, or was last, followed; 0 without one. A plan may span several steps.
  std::uint32_t plan_steps = 0;
  double planned_seconds = 0.0;
  double followed_seconds = 0.0;  ///< What it took, waits included: median of its latest rounds.
  Bytes followed_peak;            ///< The most bytes in memory in these rounds.
  double bound_seconds = 0.0;     ///< No plan can be faster with the times and rates of that one.
  std::string strategy;           ///< That made it.
  Bytes planned_peak;
  std::uint32_t smallest_budget_pages = 0;

  /// The times of that plan per step of the trainer, in seconds; 0 without one.
  double planned_step_seconds() const { return per_step(planned_seconds); }
  double followed_step_seconds() const { return per_step(followed_seconds); }
  double bound_step_seconds() const { return per_step(bound_seconds); }
  double per_step(double of_plan) const { return plan_steps == 0 ? 0.0 : of_plan / plan_steps; }

  std::vector<ValueStall> stalls;  ///< Values that were waited for longest, the largest first.
  /// About the plan that the user gave. Once steps went by it, all of the above is about it.
  std::uint64_t given_steps = 0;  ///< Went by it from their first operator to the last.
  std::string given_misfit;       ///< Why it was laid on no step; empty when it was.
};

/// Learns the repeating step of one trainer thread and gives advice while it runs: the tape of each
/// step becomes a plan, the plan is followed from the next equal step on, and a step that deviates
/// gets no advice until it is recognised again. Knows nothing of Torch, memory or I/O. Not
/// thread-safe; one instance per trainer thread.
class StepLearner {
 public:
  struct Options {
    Bytes page_size = planner::SwapLimits().page_size;
    std::uint32_t budget_pages = 0;            ///< Pages that may be resident at once.
    planner::TransferRates rates = {};         ///< Of the spill store, or of its host memory.
    std::optional<planner::FarTier> far = {};  ///< What lies behind that; none: there is one tier.
    /// The same as seen lately, asked for when a step has ended. Empty: they stay as they are.
    std::function<planner::TransferRates()> rates_now = {};
    /// Pages that storages may take now. Asked for at each operator; empty: all of the budget.
    std::function<std::uint32_t()> room = {};
    /// The most bytes in memory since the last call. Asked for when a step has ended; may be empty.
    std::function<Bytes()> take_peak = {};
    /// What all transfers have moved so far. Asked for at each operator; empty: nothing moves.
    std::function<Bytes()> moved = {};
    /// The moment that the device of the operators comes to now, which is told while it is
    /// measured; see RuntimeOptions. Empty: operators take their time on the host.
    std::function<device::Event()> moment = {};
    PlanningOptions planning = {};
    ProfileRecording* recording = nullptr;  ///< Is told of each step that ends; outlives this.
    StepTraceRecorder* trace = nullptr;     ///< As well.
    /// The storage that a piece is all of; none: it is a part of one. Needed with `trace`.
    std::function<StorageId(PieceId)> storage_of = {};
  };

  explicit StepLearner(const Options& options);
  ~StepLearner();

  /// An operator is about to run. `signature` names operator and shapes; `uses` are its paged
  /// inputs (in order, without duplicates). Advice: fetches that start here, the room that they
  /// must leave, and next uses when the prediction has changed. Appends to the lists, as `end_op`
  /// does.
  /// `shared`: pages of small storages that it uses. They are no part of what the operator is
  /// recognised by, since which storages share one may differ from step to step.
  void begin_op(std::uint64_t signature, std::span<const PieceUse> uses, TimePoint now,
                Advice& advice, bool is_replayable = false, const AutogradFacts& autograd = {},
                std::span<const PieceUse> shared = {});

  /// Whether the plan runs anything again before the operator that should come next.
  bool may_be_due() const;

  /// What the plan runs again before an operator that is about to begin: numbers as in
  /// `Advice::record_as`, in order. Empty when the operator is not the one that should come. Valid
  /// until the next call.
  std::span<const profile::OpIndex> due_replays(std::uint64_t signature,
                                                std::span<const PieceUse> uses);
  /// Operators that have begun so far: what `due_replays` told holds until there is another one.
  std::uint64_t seen_ops() const;
  /// One of them runs, or is left out as needless: advice as for any operator.
  void begin_replay(std::size_t position, Advice& advice);
  /// `took`: without waits for pages and room; 0 when it was left out. `moved`: bytes meanwhile.
  void end_replay(std::size_t position, Duration took, Bytes moved, Advice& advice);
  /// The operator that runs cannot be recorded, as asked for: no later plan is to rely on it.
  void cannot_record();

  /// A storage was born, inside the operator between `begin_op` and `end_op` or outside of one.
  /// `is_filled`, `bytes`: see TapeRecorder.
  void allocated(PieceId piece, std::uint32_t pages, Bytes bytes = {}, bool is_filled = true);

  /// A page that small storages share was born, as above, or got another small storage of the
  /// operator that runs.
  void allocated_shared(PieceId page);
  void use_shared(PieceId page);

  /// What a storage is known to hold, for the recording.
  void note_class(PieceId piece, profile::StorageClass holds);

  /// Of the latest operator, as it stands on the tape.
  std::uint64_t signature() const;

  /// A storage died.
  void freed(PieceId piece);

  /// Pages that storages may take now: the budget less what small blocks hold. Plans keep to the
  /// least of the latest steps; without a call, to the budget.
  void note_room(std::uint32_t pages);

  /// Time since `begin_op` in which the thread waited for pages or for room. It is no part of the
  /// operator's own time, on which plans are built. `moved`: bytes that moved meanwhile. May be
  /// called several times per operator.
  void waited(Duration time, Bytes moved = {});

  /// Whether operators are measured on the device now: in the first steps of a kind, and then in
  /// one of sixteen.
  bool measures() const;
  /// The operator that has begun has its memory: its kernels come next.
  void note_begin();
  /// What the device did from that moment until now was not for the operators: it ran dry while
  /// the host waited for pages or room, or did something again. Such times do not overlap.
  void note_apart(const device::Event& from);

  /// The latest operator is called so; the first name that its signature got stays.
  void name_op(const OpText& text);

  /// Of such a wait, the part that was for a storage of the operator.
  void waited_for(PieceId piece, StallLedger::Reason reason, Duration time);

  /// The operator has finished. Advice: next uses of what it touched, write-outs that start here.
  void end_op(Advice& advice);

  /// The moment that next uses are compared with: the count of the latest `begin_op`, from 1 on.
  OpClock clock() const;

  /// The trainer begins a new step (known from the autograd state, or told by the API).
  void step_boundary();

  std::uint64_t steps() const;  ///< As in the report, as the next one.
  bool follows_plan() const;
  LearnerReport report() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway::runtime
