#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/flat_hash_map.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace spillway::recompute {

/// Schemas of operators that have ended so far: libraries take theirs along where they are
/// unloaded. Counted once a thread has called `watch_operators`.
inline std::atomic<std::uint64_t> ended_operators{0};
/// Any thread, any number of times. Not under the lock of the dispatcher.
void watch_operators();

/// What schema and registrations of operators say, worked out when it is first asked for. Kernels
/// that are registered for a known schema later are not looked at again. One per thread, so it
/// needs no lock.
template <typename Facts>
class OperatorCache {
 public:
  /// Valid until this thread asks for the same schema after one has ended.
  const Facts& of(const c10::OperatorHandle& op) {
    Known& known = known_[&op.schema()];
    // Another operator may have been registered at the address of one that has ended.
    const std::uint64_t ended = ended_operators.load(std::memory_order_relaxed);
    if (known.facts == nullptr || known.ended != ended) {
      watch_operators();
      known = {std::make_unique<Facts>(op), ended};
    }
    return *known.facts;
  }

 private:
  struct Known {
    std::unique_ptr<Facts> facts;
    std::uint64_t ended = 0;  ///< Operators until then.
  };
  ska::flat_hash_map<const c10::FunctionSchema*, Known> known_;
};

}  // namespace spillway::recompute
