#pragma once

#include <chrono>
#include <memory>

#include "spillway/base/clock.h"
#include "spillway/swap/spill_store.h"
#include "store/notifier.h"

namespace spillway::swap {

struct RetryOptions {
  std::uint32_t attempts_max = 4;                       ///< The first one included.
  Duration first_pause = std::chrono::milliseconds(1);  ///< Doubles with every attempt.
};

/// Repeats transfers that failed for a reason that may pass. One that fails for good is reported
/// with the number of attempts; from then on the store gives out no new extents, and reads go on.
/// `notifier` is the one that `child` notifies; `clock` outlives the store.
std::unique_ptr<SpillStore> make_retrying_store(std::unique_ptr<SpillStore> child,
                                                std::shared_ptr<Notifier> notifier,
                                                const Clock& clock, RetryOptions options = {});

}  // namespace spillway::swap
