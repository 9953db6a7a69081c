#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "recorded_call.h"

namespace spillway::recompute {

/// Which of the blocks of an output's size that a kernel asks for becomes the output: it may ask
/// for workspace before. Found by trying, call by call, for each operator and shape. Any thread.
class ClaimOrders {
 public:
  /// What a call told of one placed output.
  struct Seen {
    std::uint32_t output = 0;
    std::uint32_t blocks = 0;  ///< How many of its size the kernel asked for.
    /// Number of the block that it turned out to be; negative when that is not known.
    std::int64_t right = -1;
  };

  /// Per output, how many blocks of its size come before it.
  std::vector<std::uint32_t> of(const RecordedCall& call, const std::vector<void*>& places) const;

  /// After a call that left an output elsewhere. Whether the next one will try another order.
  bool learn(const RecordedCall& call, std::vector<std::uint32_t> order,
             const std::vector<Seen>& seen);

 private:
  struct Order {
    std::vector<std::uint32_t> blocks_before;
    std::uint32_t tries = 0;
  };

  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, Order> orders_;
};

}  // namespace spillway::recompute
