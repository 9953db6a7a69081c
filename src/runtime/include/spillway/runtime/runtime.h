#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/base/clock.h"
#include "spillway/base/error.h"
#include "spillway/recompute/call/recorded_call.h"
#include "spillway/runtime/recording/op_text.h"
#include "spillway/runtime/recording/profile_recording.h"
#include "spillway/runtime/recording/stall_ledger.h"
#include "spillway/runtime/reporting/runtime_report.h"
#include "spillway/runtime/runtime_options.h"
#include "spillway/swap/swap_engine.h"

namespace spillway::runtime {

class HeldStorages;
class LastUses;
class StepGuide;
class Recomputer;
class SharedPages;
struct ReplayBody;

/// Carries a trainer through its steps: allocates its memory of one device, brackets the operators
/// that use it, learns their order and passes what was learned on to the swap engine. Free of
/// Torch; the adapter in bindings/torch calls it from the trainer's threads.
class Runtime {
 public:
  /// The host's, and those of other devices.
  static constexpr std::size_t kMostRuntimes = 17;
  static constexpr std::size_t kStepsTimed = 65536;  ///< The latest ones, in 256 KiB.

  Runtime(const RuntimeOptions& options, std::unique_ptr<swap::SwapEngine> engine,
          const Clock& clock);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// The operator with the largest need so far; none before the first one. Any thread.
  std::optional<profile::ProgramNeeds> program_needs() const;

  /// Memory for a tensor, aligned to 64 bytes; on other devices than the host of `min_storage` at
  /// least. Throws BudgetError, with what holds the memory and the smallest budget that would do,
  /// IoError, RecomputeError, or std::bad_alloc. Any thread.
  void* allocate(std::size_t size);
  /// `until`: when a device has done what its streams do with the memory past the operators.
  void deallocate(void* memory, const device::Event& until = {}) noexcept;
  /// Counts memory that others allocate, and makes room for it first. Throws as `allocate`.
  void count_other(Bytes size);
  void uncount_other(Bytes size) noexcept { engine_->release_small(size); }
  void hold_until_freed(StorageId storage);  ///< On a device: it is used past the operators.

  /// The paged storage that `memory` points into, or none. Any thread, no lock.
  RangeUse find(const void* memory) const noexcept { return engine_->find(memory); }
  /// The same with the pages of `size` bytes from there.
  RangeUse find(const void* at, Bytes size) const noexcept { return engine_->find(at, size); }
  /// Whether `storage` is a page that small storages share: it is pinned as any other, but neither
  /// learned nor recorded. Any thread, no lock.
  bool is_shared(StorageId storage) const noexcept;
  RangeUse find_unshared(const void* memory) const noexcept;  ///< None where it is shared.

  /// Announces an operator on this thread; `begin_op` follows when its tensors are found.
  void announce_op() noexcept;
  /// Starts the announced operator: fetches its paged storages and pins them. Throws as `allocate`;
  /// then `end_op` must not be called. Operators do not nest. `uses` has the results of `find` for
  /// its tensors, in the order of OpUses; `shared` those of tensors in shared pages.
  void begin_op(std::uint64_t signature, std::span<const RangeUse> uses, const OpText& text,
                const OpTraits& traits = {}, std::span<const RangeUse> shared = {});
  /// `results`: storages that the operator hands out; the host's runtime needs none.
  void end_op(std::span<const StorageId> results = {}) noexcept;

  /// Whether the operator that has just begun on this thread is to be recorded. Then the caller
  /// must call `keep` after its kernel has run and before `end_op`, with none where the call cannot
  /// be recorded. Keep every argument alive until `keep`: an untracked release corrupts the record
  /// of what depends on what.
  bool wants_record() const noexcept;
  void keep(std::optional<recompute::RecordedCall> call);
  /// A moment, with what all transfers had moved and this thread had waited for them until then.
  struct Mark {
    TimePoint at;
    Bytes moved;
    Duration waited;
    std::optional<device::Event> moment = {}, traced = {};  ///< StepGuide's, StepTraceRecorder's.
  };
  /// Prepares a write by the trainer outside of all operators: brings back the dropped storages
  /// that could not be recomputed after it. An exception, in operators too, means that such a
  /// storage is lost.
  void before_write(const RangeUse& use);
  void* address_of(StorageId storage) const { return engine_->address_of(storage); }

  /// Prepares a fork: brings back dropped storages, which the child could not, and drops nothing
  /// until it is over. One that cannot come back is logged; the child ends where it touches it.
  void before_fork() noexcept;
  void after_fork_in_parent() noexcept;
  /// Ends the operator that has forked; none may begin after it.
  void after_fork_in_child() noexcept;
  /// Whether a profile is being recorded.
  bool records() const { return options_.recording != nullptr; }
  /// Whether values get names, so that `note_class` should be called.
  bool names_values() const {
    return records() || options_.trace != nullptr || engine_->is_under_pressure();
  }
  /// Sets the class of a paged storage that the next operator uses; for the profile.
  void note_class(StorageId storage, profile::StorageClass holds);
  /// Sets the bytes of all parameters that are too small to be paged, as this thread knows them.
  void note_small_parameters(Bytes bytes);
  static bool runs_operator();         ///< Whether one runs on this thread, on any runtime.
  bool has_begun_op() const noexcept;  ///< The same of this one alone.
  /// Reports a recognised new step, between operators.
  void step_boundary();
  /// Reports a new step that the trainer has marked. After the first call only these calls count.
  void begin_step();
  /// Reports that the optimizer has begun to write: the step counts even if none follows.
  void step_updated();

  /// Ends the run; logs the smallest budget if operators needed more than the budget.
  enum class Ending { kByItself, kBySignal };
  void finish(Ending ending);

  Bytes budget() const { return options_.budget; }
  bool recomputes() const { return recomputer_ != nullptr; }
  std::optional<device::Event> moment() const;  ///< As in RuntimeOptions; none on the host.
  bool traces() const { return options_.trace != nullptr; }
  Bytes unlisted_peak() const;  ///< Of what profiles do not list: peaks of both kinds, added.
  /// Counters so far. Any thread; never waits for a plan or a replay.
  RuntimeCounts counts() const;
  /// Report for the end of a run; takes milliseconds, and longer where steps are long. Waits up to
  /// `patience` for a busy learner, whose part is then missing (`not_reported`).
  RuntimeReport report(Duration patience = std::chrono::seconds(1)) const;
  swap::SwapEngine& engine() { return *engine_; }

  /// Called after each finished step, on the trainer's thread, with the step's duration.
  std::function<void(Duration)> on_step;
  /// Called before an operator once the recording is complete, on the trainer's thread.
  std::function<void()> on_recorded;
  /// Called on a thread of its own when an operator that needs more than the budget has moved as
  /// many bytes as it may and has not ended. Nothing can interrupt it, so the process should end.
  std::function<void()> on_endless_op;

 private:
  friend class Rehearsal;
  friend class HostWorkspace;
  struct OpContext;
  struct OpContexts;
  struct Oversize;
  OpContext& context() const;
  bool is_of_host() const { return options_.number == 0; }
  device::Event given_so_far() const;
  const void* trainer_of(const OpContext& op) const;
  void hold_hidden(OpContext& op, std::span<const StorageId> results) noexcept;
  void note_kept_of_refused(OpContext& op, std::uint64_t kept) noexcept;
  std::uint32_t pages_of(std::size_t size) const;
  Mark mark() const;
  Mark mark_wait(const OpContext& op) const;
  struct Wait;
  Wait waited_since(const Mark& since) const;
  Wait passed_since(const Mark& since) const;
  void tell_values(const OpContext& op, std::span<const RangeUse> uses, Duration waited);
  void note_allocated(OpContext& op, StorageId storage, std::size_t size);
  void end_wait_for_room(OpContext& op, StorageId born, const Mark& start);
  void* allocate_small(std::size_t size, OpContext& op);
  void* allocate_shared(std::size_t size, OpContext& op);
  void release_shared(OpContext& op, void* memory, StorageId page);
  std::uint32_t room_for_plans() const;
  template <typename Action>
  void with_room(OpContext& op, std::uint64_t asked, const Action& action);
  std::uint64_t need_of(const OpContext& op, const swap::NoRoomError& error, std::uint64_t asked);
  void page_through(OpContext& op, std::uint64_t need);
  void check_oversize(OpContext& op, std::uint64_t asked);
  void end_endless_op(const std::string& name, Bytes moved);
  void end_oversize(OpContext& op) noexcept;
  std::string oversize_limit_text() const;
  std::string oversize_cost_locked(Duration passed, std::string_view what);
  [[noreturn]] void refuse_oversize(OpContext& op, std::uint64_t need);
  Bytes moved() const;
  std::string why_refused(const OpContext& op, std::uint64_t need, Bytes moved) const;
  enum class Finding { kWhole, kSoFar };  ///< All operators were seen, or larger ones may follow.
  std::string smallest_budget_text_locked(const swap::SwapStatistics& memory, Finding found) const;
  Bytes smallest_budget_locked(const swap::SwapStatistics& memory) const;
  void* allocate_in_rehearsal(OpContext& op, std::size_t size);
  swap::SwapEngine::Allocation allocate_paged(OpContext& op, std::size_t size);
  void settle_drops(OpContext& op, std::span<const RangeUse> uses, const OpText& text,
                    const OpTraits& traits, std::span<const RangeUse> shared);
  void learn_op(OpContext& op, std::span<const RangeUse> uses, const OpText& text,
                const OpTraits& traits, std::span<const RangeUse> shared = {});
  Bytes shared_peak() const;  ///< The most bytes of pages that small storages shared.
  void consider_learning_shared();
  void follow_orders(OpContext& op);
  void pin(OpContext& op, std::span<const RangeUse> uses);
  void hold(OpContext& op, std::span<const RangeUse> uses, std::span<const RangeUse> shared);
  void bring_back(OpContext& op, std::uint64_t signature, std::span<const RangeUse> uses);
  void drop_wished(OpContext& op) noexcept;
  void settle_unrecorded(OpContext& op);
  void run_replay(profile::OpIndex place, const recompute::RecordedCall& call,
                  std::span<const RangeUse> uses, const ReplayBody& body);
  void note_need(OpContext& op);
  void note_need_locked(std::uint64_t pages, const std::string& who);
  void note_refusal(const Error& error, const std::string& who, std::uint64_t signature);
  void refuse_locked(Refusal refusal, std::uint64_t signature);
  void end_refusal_locked();
  void note_success(const OpContext& op);
  void end_step();
  std::uint64_t steps_locked() const;
  bool is_in_first_step_locked() const;
  void sample_since(TimePoint start) noexcept;

  RuntimeOptions options_;
  const Clock& clock_;
  std::unique_ptr<swap::SwapEngine> engine_;
  const Bytes page_size_;
  std::unique_ptr<SharedPages> shared_;
  std::unique_ptr<HeldStorages> held_;      ///< None on the host.
  std::unique_ptr<LastUses> last_uses_;     ///< Before the host works on what a device has used.
  std::atomic<bool> learns_shared_{false};  ///< Plans know of shared pages, from now on.
  std::unique_ptr<StepGuide> guide_;        ///< None when nothing is learned.
  std::unique_ptr<Recomputer> recomputer_;  ///< None when nothing is recomputed.
  mutable std::mutex step_mutex_;
  std::uint64_t boundaries_ = 0;
  bool has_ended_by_itself_ = false;
  bool is_updated_ = false;  ///< Since the last boundary the optimizer has written.
  std::atomic<bool> trainer_tells_steps_{false};
  TimePoint step_start_{};
  std::vector<float> step_seconds_;  ///< Of the latest steps, in any order.
  std::uint64_t timed_steps_ = 0;
  Refusal refusal_;                      ///< What failed last; until the trainer goes on.
  std::uint64_t refused_signature_ = 0;  ///< Of the operator; 0: an allocation outside of one.
  std::atomic<bool> is_refused_{false};
  OversizeCounts oversize_, oversize_before_;   ///< Until now; until the step began.
  Bytes tell_oversize_from_;                    ///< When they have moved so much.
  std::array<bool, kRefusalCauses> is_told_{};  ///< By cause.
  std::atomic<std::uint64_t> largest_need_pages_{0};
  std::string largest_op_;
  bool is_largest_op_early_ = false;
  bool is_largest_op_cut_ = false;  ///< It was refused before it had all that it needs.
  std::atomic<std::uint64_t> ops_{0};
  std::atomic<std::uint64_t> sampled_intercept_ns_{0};
  std::atomic<std::uint64_t> replay_ns_{0};
  StallLedger stalls_;
};

}  // namespace spillway::runtime
