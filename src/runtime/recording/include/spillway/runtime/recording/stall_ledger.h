#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/base/clock.h"
#include "spillway/profile/storage_class.h"

namespace spillway::runtime {

class OpText;

/// What one kind of operator has waited for.
struct StallCause {
  std::string op;  ///< Name and shapes.
  std::uint64_t times = 0;
  Duration for_inputs{0};
  Duration for_room{0};

  Duration total() const { return for_inputs + for_room; }
};

/// What was waited for by one value of a step, over all steps.
struct ValueStall {
  std::string value;  ///< "activation 31", as profiles and traces name it.
  profile::StorageClass holds = profile::StorageClass::kUnknown;
  Bytes bytes;
  std::string made_by;  ///< Operator; empty: it comes from before the step.
  std::uint64_t times = 0;
  Duration for_inputs{0};  ///< To come in.
  Duration for_room{0};    ///< To find room at its birth.

  Duration total() const { return for_inputs + for_room; }
};

/// Keeps account of which operators the trainer waited in. Any thread.
class StallLedger {
 public:
  /// Shorter waits are the price of a lock, not a stall.
  static constexpr Duration kNoticeable = std::chrono::microseconds(100);

  enum class Reason : std::uint8_t { kInputs, kRoom };

  /// An operator of that signature has waited so long. Asks for its text the first time.
  void note(std::uint64_t signature, const OpText& text, Reason reason, Duration waited);

  /// The `count` largest causes, the largest first.
  std::vector<StallCause> largest(std::size_t count) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, StallCause> causes_;
};

}  // namespace spillway::runtime
