#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/profile/tape_recorder.h"
#include "spillway/runtime/recording/op_names.h"
#include "spillway/runtime/recording/stall_ledger.h"

namespace spillway::runtime {

/// Keeps account of which values the trainer waited for. What a storage is shows the whole step
/// only, so waits are noted by storage and settled when it has ended. One thread.
class ValueStalls {
 public:
  /// The step that runs has waited for the storage with this serial number.
  void note(std::uint64_t serial, StallLedger::Reason reason, Duration waited);

  /// The step has ended. What it does not show is forgotten. `names`: of the makers of values.
  void settle(const profile::RecordedStep& step, Bytes page_size, const OpNames& names);

  /// The `count` largest, the largest first.
  std::vector<ValueStall> largest(std::size_t count) const;

 private:
  struct Waits {
    std::uint64_t times = 0;
    Duration for_inputs{0};
    Duration for_room{0};
  };
  std::unordered_map<std::uint64_t, Waits> noted_;                       ///< By serial number.
  std::map<std::pair<std::string, std::uint64_t>, ValueStall> settled_;  ///< By text and bytes.
};

}  // namespace spillway::runtime
