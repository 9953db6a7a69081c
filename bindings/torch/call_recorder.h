#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "replay_verdicts.h"
#include "spillway/recompute/replay_engine.h"
#include "spillway/runtime/reporting/run_statistics.h"
#include "spillway/runtime/runtime.h"

namespace spillway::torch_binding {

/// Records the operators that plans of one runtime want to run again, and hands them to it. Any
/// thread.
class CallRecorder {
 public:
  struct Options {
    c10::DispatchKey key;  ///< Of the interceptor, which does not see what runs again.
    /// Each kind of call that might run again is compared with a replay, bit for bit, the first
    /// time that it comes and there is room; what could not be recorded then, when a plan wants it.
    bool verifies = false;
    c10::Device device = c10::kCPU;  ///< The runtime's.
    /// Why what this thread gives the device now cannot run again; null: it can.
    const char* (*objection_to_stream)(c10::DeviceIndex device) = nullptr;
  };
  CallRecorder(runtime::Runtime& runtime, const Options& options);

  /// What these comparisons have shown so far.
  runtime::VerifiedReplays verified() const { return verdicts_.sum(); }
  /// The most bytes at once, beside the budget, of copies of what recorded operators have read.
  Bytes most_copied() const { return engine_.most_copied(); }

  /// See ReplayEngine.
  bool before_free(const void* memory) noexcept { return engine_.before_free(memory); }
  void before_write(const c10::StorageImpl& storage) { engine_.before_write(storage); }
  void before_write(const void* memory) { engine_.before_write(memory); }
  bool heeds_writes() const { return engine_.heeds_writes(); }
  void before_call(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
    engine_.before_call(op, arguments);
  }
  std::unique_lock<std::recursive_timed_mutex> take_turn(const c10::OperatorHandle& op) {
    return engine_.take_turn(op);
  }

  /// One call of an operator, from before its kernel until after it.
  class Call {
   public:
    Call(CallRecorder& recorder, const c10::OperatorHandle& op,
         c10::ArrayRef<c10::IValue> arguments, const AutogradFacts& autograd);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    /// The kernel has run and these are its results.
    void end(c10::ArrayRef<c10::IValue> results);

   private:
    explicit Call(CallRecorder& recorder);
    std::string objection_to(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);
    void note_unrecordable();
    void hold(c10::ArrayRef<c10::IValue> arguments);
    bool verify(c10::ArrayRef<c10::IValue> results);

    CallRecorder& recorder_;
    bool is_wanted_;
    bool is_first_of_its_kind_ = false;  ///< And nothing is known of it yet.
    std::uint64_t kind_ = 0;
    std::unique_lock<std::recursive_timed_mutex> turn_;  ///< To draw random numbers, where it does.
    std::optional<recompute::RecordedCall> record_;
    /// Those of the arguments, which end with the kernel where nobody else has them (what resolves
    /// a lazy conjugation, say): a comparison reads them, and the runtime takes keys of what lives.
    c10::SmallVector<c10::Storage, 4> held_;
  };

 private:
  runtime::Runtime& runtime_;
  const Options options_;
  recompute::ReplayEngine engine_;
  ReplayVerdicts verdicts_;
  std::atomic<bool> is_full_told_{false};
};

}  // namespace spillway::torch_binding
