#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "spillway/recompute/replay_engine.h"
#include "spillway/runtime/run_statistics.h"
#include "spillway/runtime/runtime.h"

namespace spillway::torch_binding {

/// Records the operators that plans want to run again, and hands them to the runtime. One per
/// process; any thread.
class CallRecorder {
 public:
  /// `key`: that of the interceptor, which does not see what runs again. `verifies`: each kind of
  /// call that might run again is compared with a replay, bit for bit, the first time that it comes
  /// and there is room.
  CallRecorder(runtime::Runtime& runtime, c10::DispatchKey key, bool verifies);

  /// What these comparisons have shown so far.
  runtime::VerifiedReplays verified() const;
  /// The most bytes at once, beside the budget, of copies of what recorded operators have read.
  Bytes most_copied() const { return engine_.most_copied(); }

  /// See ReplayEngine.
  void before_free(const void* memory) noexcept { engine_.before_free(memory); }

  /// One call of an operator, from before its kernel until after it.
  class Call {
   public:
    Call(CallRecorder& recorder, const c10::OperatorHandle& op,
         c10::ArrayRef<c10::IValue> arguments);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    /// The kernel has run and these are its results.
    void end(c10::ArrayRef<c10::IValue> results);

   private:
    explicit Call(CallRecorder& recorder);
    bool may_be_recorded(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);
    void hold(c10::ArrayRef<c10::IValue> arguments);
    bool verify(c10::ArrayRef<c10::IValue> results);
    void settle(bool is_equal);

    CallRecorder& recorder_;
    bool is_wanted_;
    bool is_first_of_its_kind_ = false;  ///< And nothing is known of it yet.
    std::uint64_t kind_ = 0;
    std::unique_ptr<recompute::OpRecord> record_;
    /// Those of the arguments, which end with the kernel where nobody else has them (what resolves
    /// a lazy conjugation, say): a comparison reads them, and the runtime takes keys of what lives.
    c10::SmallVector<c10::Storage, 4> held_;
  };

 private:
  enum class Outcome : std::uint8_t { kUnknown, kEqual, kDiffers };
  struct Kind {
    const c10::FunctionSchema* op = nullptr;
    Outcome outcome = Outcome::kUnknown;
  };

  runtime::Runtime& runtime_;
  bool verifies_;
  recompute::ReplayEngine engine_;
  mutable std::mutex kinds_mutex_;
  std::unordered_map<std::uint64_t, Kind> kinds_;  ///< Of calls that were compared, or are now.
};

}  // namespace spillway::torch_binding
