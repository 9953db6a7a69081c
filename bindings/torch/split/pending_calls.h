#pragma once

#include <span>

#include "deferred_calls.h"
#include "executor.h"
#include "program_data.h"
#include "program_memory.h"
#include "running_call.h"
#include "storage_table.h"

namespace spillway::split {

/// Makes calls that run later of operators of the program: whether one may, and what it takes
/// along. The program's thread.
class PendingCalls {
 public:
  /// All outlive it.
  PendingCalls(StorageTable& storages, ProgramData& data, ProgramMemory& memory,
               DeferredCalls& deferred)
      : storages_(storages), data_(data), memory_(memory), deferred_(deferred) {}

  /// Whether a call that this rank computes alone may run later.
  bool may_wait(const CalledOperator& called, const RunningCall& running) const;
  /// Whether all ranks could compute a call that makes or fills something large, and nothing of it
  /// is to be seen before a rank needs that. All ranks compute it at once else. Notes whether it
  /// begins anew.
  bool may_defer(const CalledOperator& called, RunningCall& running) const;

  /// The call, but for what it makes, and which storages it reads and writes.
  PendingCall record(const CalledOperator& called, RunningCall& running, bool is_deferred) const;
  /// A call that may be deferred waits; what it makes is there.
  void defer(PendingCall call, const CalledOperator& called, const RunningCall& running) const;

 private:
  bool begins_anew(const CalledOperator& called, const RunningCall& running) const;
  bool may_use_later(const pipeline::OperatorUse& use) const;
  bool makes_no_integers(const CalledOperator& called, RunningCall& running) const;
  bool may_copy(c10::ArrayRef<c10::IValue> arguments) const;
  void record_arguments(const CalledOperator& called, RunningCall& running,
                        PendingCall& call) const;
  void record_storage(const CalledOperator& called, RunningCall& running, c10::StorageImpl& storage,
                      ArgumentTensor& noted) const;

  StorageTable& storages_;
  ProgramData& data_;
  ProgramMemory& memory_;
  DeferredCalls& deferred_;
};

}  // namespace spillway::split
