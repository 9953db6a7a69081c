#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "spillway/device/event.h"
#include "spillway/profile/step_tape.h"
#include "spillway/recompute/call/recorded_call.h"
#include "spillway/swap/residency.h"

namespace spillway::runtime {

using profile::OpIndex;
using recompute::OutputMemory;
using recompute::RecordedCall;
using swap::RangeUse;

/// How often operators ran again, and why.
struct RecomputationCounts {
  std::uint64_t replays = 0;            ///< Operators that ran again.
  std::uint64_t unplanned_replays = 0;  ///< Of them: because a step went otherwise than planned.
  std::uint64_t refused_drops = 0;      ///< Values that were to be dropped and stayed.
};

/// What an operator that runs again does, in two steps.
struct ReplayBody {
  std::function<void()> compute;
  /// Takes what was computed. Returns the storages of it that live on.
  std::function<std::vector<StorageId>(swap::PinSet&)> take;
};

/// Drops storages and computes them again from recorded operators. Knows what each of them was made
/// of, and sees to it that nothing of that changes or disappears while it is needed: an operator
/// that would write an ingredient waits until the dropped storage is back, as does a thread that
/// would write it past the operators, and a storage that is freed lives on until then.
///
/// The thread that trains records and drops. Any thread may announce operators and frees. A thread
/// of its own computes what is touched past all that, and lets such writes go on. A child that an
/// operator forks where it runs again ends once it comes back from it, with an error.
class Recomputer {
 public:
  /// Runs `body`, which is that call of that place again, as one that uses these storages, which
  /// are held meanwhile.
  using RunAsOp = std::function<void(OpIndex place, const RecordedCall& call,
                                     std::span<const RangeUse> uses, const ReplayBody& body)>;

  /// What it asks of whoever keeps the storages; all of it outlives the recomputer.
  struct Memory {
    swap::StorageMemory& storages;
    swap::DroppedStorages& drops;
    swap::WriteGuards& guards;
  };

  Recomputer(const Memory& memory, RunAsOp run_as_op);
  ~Recomputer();
  Recomputer(const Recomputer&) = delete;
  Recomputer& operator=(const Recomputer&) = delete;

  /// An operator of the step has run, and may have to run again. `place` is its position in the
  /// tape that plans refer to. From now on nothing writes to what it has used or made without the
  /// recomputer's knowledge.
  void keep(OpIndex place, RecordedCall call);

  /// An operator is about to run that uses these storages: brings back those that are dropped, and
  /// what can no longer be computed once it has written to them. `is_recorded`: `keep` follows.
  void before_op(std::span<const RangeUse> uses, bool is_recorded);

  /// The operator that `before_op` announced as recorded was not: nobody knows what it has written.
  void note_unrecorded_writes(std::span<const StorageId> written);

  /// Gives up the bytes of a storage. False, and nothing changes, where that could not be undone.
  bool drop(StorageId storage);

  /// Runs these operators again, as a plan has it, as far as they bring anything back.
  /// `around` is called before and after each of them, the needless ones included.
  void replay(std::span<const OpIndex> places,
              const std::function<void(std::size_t position, bool ends)>& around);

  /// A storage that was freed, and that a device uses until then.
  struct Ended {
    StorageId storage;
    device::Event until;
  };

  /// A storage ends. False when it must live on for a while; `take_ended` tells when it may go, as
  /// of `until`.
  bool may_end(StorageId storage, const device::Event& until = {}) noexcept;
  /// Storages that were freed and are needed no more. Call between operators.
  std::vector<Ended> take_ended();

  /// Brings everything back and forgets all operators: the step is over, or takes another course.
  void end_step();

  void restore_all();

  /// The process is about to fork, and a child cannot compute: brings everything back where that is
  /// possible, and drops nothing more until as many calls of `end_fork` have come, by the parent.
  /// `may_replay`: no operator runs on this thread. Says what stays dropped and why; empty:
  /// nothing.
  std::string begin_fork(bool may_replay);
  void end_fork();

  /// Whether any operator is kept, without a lock.
  bool is_active() const { return active_.load(std::memory_order_relaxed); }
  /// Without a lock: whoever tells how a run ended may come while a replay takes its time, or holds
  /// the mutex for ever since its exception was caught by nobody.
  RecomputationCounts counts() const;

 private:
  struct KeptCall;
  struct Allocation;
  class TemporariesForgotten;
  class Agenda;
  struct Ingredient {
    Allocation* allocation = nullptr;
    std::uint32_t version = 0;  ///< Writes to it before the operator ran.
  };
  /// Of an allocation, among the operators of a list: a position in it.
  struct LastUse {
    std::uint64_t list = 0;
    std::size_t position = 0;
    bool is_after(const LastUse& now) const { return list == now.list && position > now.position; }
  };

  Allocation& allocation_of(StorageId storage);
  Allocation* live(StorageId storage);
  bool is_there(const Allocation& allocation, std::uint32_t version) const;
  bool can_compute(Allocation& gone) noexcept;
  template <typename Visit>
  void for_each_dependent(Allocation& source, std::uint32_t first, std::uint32_t last,
                          const Visit& visit);
  bool is_needed(Allocation& ended) noexcept;
  std::vector<KeptCall*> calls_for(std::vector<Ingredient> wanted, KeptCall* last);
  std::uint64_t note_last_uses(std::span<KeptCall* const> calls, LastUse Allocation::*use);
  void run_all(std::span<KeptCall* const> calls, const LastUse& planned);
  void leave_out_needless(std::vector<KeptCall*>& calls);
  bool is_done(const KeptCall& kept) const;
  void restore(Allocation& allocation);
  void restore_unplanned(Allocation& allocation);
  void run(KeptCall& kept);
  void take_results(KeptCall& kept, std::vector<OutputMemory> made, swap::PinSet& pins);
  std::vector<StorageId> temporary_storages() const;
  void adopt_if_complete(Allocation& allocation, swap::PinSet& pins);
  void restore_dependents(Allocation& ingredient);
  void forget_temporaries();
  void note_write(Allocation& allocation, bool is_recorded);
  void guard(Allocation& allocation);
  void allow_write(StorageId storage);
  void serve_wanted();

  const Memory memory_;
  const RunAsOp run_as_op_;
  mutable std::recursive_mutex mutex_;  ///< Replays allocate and free on the thread that holds it.
  std::unordered_map<StorageId, std::unique_ptr<Allocation>> allocations_;
  std::unordered_map<OpIndex, KeptCall*> placed_;
  std::vector<std::unique_ptr<KeptCall>> kept_;
  std::vector<Allocation*> dropped_;
  std::vector<Allocation*> temporaries_;  ///< Have memory of a replay at present.
  std::vector<Ended> ended_;              ///< Freed, to be given back.
  std::vector<Allocation*> postponed_;    ///< Freed, but needed.
  std::uint32_t forks_ = 0;               ///< Under way: nothing is dropped meanwhile.
  std::uint64_t questions_ = 0;  ///< Asked so far; allocations and calls are marked with them.
  struct {
    std::atomic<std::uint64_t> replays{0}, unplanned_replays{0}, refused_drops{0};
  } counts_;  ///< Written under the mutex.
  std::atomic<bool> active_{false};
  std::thread server_;
};

}  // namespace spillway::runtime
