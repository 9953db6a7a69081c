#include "claim_orders.h"

#include <utility>

namespace spillway::recompute {
namespace {

constexpr std::uint32_t kMostTries = 16;

// Beyond that many, shapes are taken to come and go, and all are learned anew.
constexpr std::size_t kMostOrders = 1 << 14;

void mix(std::uint64_t& hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  hash ^= hash >> 32;
}

/// Names an operator with its shapes.
std::uint64_t name_of(const RecordedCall& call) {
  // The schema lives as long as the operator, so its address names it within the process.
  std::uint64_t hash = reinterpret_cast<std::uintptr_t>(&call.op().schema());
  for (const StorageMade& made : call.outputs()) mix(hash, made.bytes.count());
  for (const TensorArgument& tensor : call.tensors) {
    mix(hash, static_cast<std::uint64_t>(tensor.dtype));
    for (const std::int64_t size : tensor.sizes) mix(hash, static_cast<std::uint64_t>(size));
    for (const std::int64_t stride : tensor.strides) mix(hash, static_cast<std::uint64_t>(stride));
  }
  return hash;
}

/// Results are allocated in order, mostly.
std::vector<std::uint32_t> first_guess(const RecordedCall& call, const std::vector<void*>& places) {
  std::vector<std::uint32_t> before(places.size(), 0);
  for (std::size_t i = 0; i < places.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (call.outputs()[j].bytes == call.outputs()[i].bytes) ++before[i];
  return before;
}

}  // namespace

std::vector<std::uint32_t> ClaimOrders::of(const RecordedCall& call,
                                           const std::vector<void*>& places) const {
  {
    const std::lock_guard lock(mutex_);
    if (!orders_.empty()) {
      const auto found = orders_.find(name_of(call));
      if (found != orders_.end() && found->second.blocks_before.size() == places.size())
        return found->second.blocks_before;
    }
  }
  return first_guess(call, places);
}

bool ClaimOrders::learn(const RecordedCall& call, std::vector<std::uint32_t> order,
                        const std::vector<Seen>& seen) {
  for (const Seen& one : seen) {
    std::uint32_t& before = order[one.output];
    if (one.right >= 0) {
      before = static_cast<std::uint32_t>(one.right);
    } else if (one.blocks > 0) {
      before = (before + 1) % one.blocks;
    }
  }
  const std::lock_guard lock(mutex_);
  if (orders_.size() >= kMostOrders) orders_.clear();
  Order& known = orders_[name_of(call)];
  if (known.tries >= kMostTries) return false;
  ++known.tries;
  known.blocks_before = std::move(order);
  return true;
}

}  // namespace spillway::recompute
