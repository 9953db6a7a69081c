#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "paged_table.h"
#include "spillway/recompute/replay_engine.h"
#include "watched_calls.h"

namespace spillway::recompute {

/// An engine over the table, which tells it of blocks that end. Hidden from the watchers.
std::shared_ptr<ReplayEngine> make_engine(ReplayEngineOptions options = {});

/// Runs a call again and copies what it made to where that was, if it is still there.
void replay_in_place(const RecordedCall& call, const AddressOf& address_of);

/// Runs every call that can run again twice more: as a verification, and after its results were
/// overwritten. Fails where a bit differs or anything else has changed.
class CheckedCalls final : public CallWatcher {
 public:
  explicit CheckedCalls(ReplayEngine& engine) : engine_(engine) {}
  void around(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack,
              const std::function<void()>& run) override;

  std::map<std::string, int> replayed;         ///< Replays by operator, overload included.
  std::map<std::string, std::string> refused;  ///< Reasons by operator.

 private:
  ReplayEngine& engine_;
};

/// Records calls without running them again.
class CallsOfTrainer final : public CallWatcher {
 public:
  struct Entry {
    std::string name;
    std::optional<RecordedCall> record;  ///< None when it was refused.
    std::string objection;
  };
  explicit CallsOfTrainer(ReplayEngine& engine) : engine_(engine) {}
  void around(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack,
              const std::function<void()>& run) override;

  /// The only call of this operator.
  Entry& of(const std::string& name);

  std::vector<Entry> entries;

 private:
  ReplayEngine& engine_;
};

}  // namespace spillway::recompute
