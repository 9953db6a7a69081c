#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <mutex>
#include <unordered_set>

#include "spillway/recompute/replay_engine.h"
#include "spillway/runtime/runtime.h"

namespace spillway::torch_binding {

/// Records the operators that plans want to run again, and hands them to the runtime. One per
/// process; any thread.
class CallRecorder {
 public:
  /// `key`: that of the interceptor, which does not see what runs again. `verifies`: each kind of
  /// call is compared with a replay, bit for bit, the first time that it is recorded and there is
  /// room.
  CallRecorder(runtime::Runtime& runtime, c10::DispatchKey key, bool verifies);

  /// One call of an operator, from before its kernel until after it.
  class Call {
   public:
    Call(CallRecorder& recorder, const c10::OperatorHandle& op,
         c10::ArrayRef<c10::IValue> arguments);
    /// The kernel has run and these are its results.
    void end(c10::ArrayRef<c10::IValue> results);

   private:
    bool verify(c10::ArrayRef<c10::IValue> results);

    CallRecorder& recorder_;
    bool is_wanted_;
    bool is_first_of_its_kind_ = false;
    std::uint64_t kind_ = 0;
    std::unique_ptr<recompute::OpRecord> record_;
  };

 private:
  runtime::Runtime& runtime_;
  bool verifies_;
  recompute::ReplayEngine engine_;
  std::mutex verified_mutex_;
  std::unordered_set<std::uint64_t> verified_;  ///< Kinds of calls whose replay gave the same bits.
};

}  // namespace spillway::torch_binding
