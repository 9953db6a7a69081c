#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "spillway/base/bytes.h"
#include "spillway/device/event.h"
#include "spillway/planner/swap_plan.h"
#include "spillway/runtime/learning/step_learner.h"

namespace spillway::runtime {

class ProfileRecording;
class StepTraceRecorder;

struct RuntimeOptions {
  /// Runtimes of one process differ in it: 0 is the host's, 1 and so on are those of other devices.
  std::uint32_t number = 0;
  /// In a rank of a split program one thread computes what repeats, on a device too: the one that
  /// ends the steps. Else all threads of a device take turns in one program.
  bool is_of_rank = false;
  /// The moment when a device that works behind the host's back has done all that this thread has
  /// given it so far; empty: it is done when an operator returns.
  std::function<device::Event()> given_so_far = {};
  /// The moment that the device comes to in the stream that this thread gives work to, recorded
  /// with Timing::kKept; none where it cannot be recorded. Empty: operators are timed on the host.
  /// Any thread, with the learner locked: it neither throws nor calls the runtime.
  std::function<device::Event()> moment = {};
  /// Around an operator that runs again, on the thread that runs it: what it gives the device comes
  /// behind all that other threads have given it so far, and what they give it next comes behind
  /// that. Nobody waits on the host. Throws Error where that cannot be. Empty: the device is the
  /// host.
  std::function<void()> before_replay = {};
  std::function<void()> after_replay = {};
  Bytes budget;
  Bytes min_storage{std::uint64_t{1} << 20};  ///< Smaller storages share pages; see SharedPages.
  bool learns = true;                         ///< Off: demand paging only.
  PlanningOptions planning = {};              ///< No effect without `learns`.
  planner::TransferRates rates;               ///< Rates of the spill store, or of its host memory.
  std::optional<planner::FarTier> far = {};   ///< Disks behind that; none: there is one tier.
  std::function<planner::TransferRates()> rates_now = {};  ///< As seen lately; empty: as above.
  std::function<Bytes()> moved = {};      ///< By all transfers so far; empty: nothing moves.
  ProfileRecording* recording = nullptr;  ///< Outlives the runtime; needs `learns`.
  /// An operator that needs more than the budget may move so much to and from the store, or 16
  /// times its need where that is more.
  Bytes moves_of_oversize{std::uint64_t{8} << 30};
  /// All such operators together may move so much; then the next one is refused. None: no limit.
  std::optional<Bytes> oversize_limit = {};
  Bytes endurance;  ///< Rated writes of all spill drives together; 0: they do not wear.
  StepTraceRecorder* trace = nullptr;  ///< Outlives the runtime.
};

}  // namespace spillway::runtime
