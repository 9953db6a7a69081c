#include "spillway/recompute/placements.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "spillway/base/assert.h"

namespace spillway::recompute {
namespace {

constinit thread_local PlacementScope* innermost = nullptr;

/// Places that kernels still hold after their scope. Of the two releases that will come for each,
/// the kernel's and the owner's, the first is not for the allocator.
class KeptPlaces {
 public:
  void add(void* memory) {
    const std::lock_guard lock(mutex_);
    memory_.push_back(memory);
    count_.store(memory_.size(), std::memory_order_relaxed);
  }
  bool take(void* memory) noexcept {
    if (count_.load(std::memory_order_relaxed) == 0) return false;
    const std::lock_guard lock(mutex_);
    const auto found = std::find(memory_.begin(), memory_.end(), memory);
    if (found == memory_.end()) return false;
    memory_.erase(found);
    count_.store(memory_.size(), std::memory_order_relaxed);
    return true;
  }

 private:
  std::mutex mutex_;
  std::vector<void*> memory_;
  std::atomic<std::size_t> count_{0};
};

// Tensors outlive static destructors.
KeptPlaces& kept_places = *new KeptPlaces;

}  // namespace

void* claim_placement(std::size_t size) noexcept {
  return innermost == nullptr ? nullptr : innermost->claim(size);
}

bool release_placement(void* memory) noexcept {
  if (innermost != nullptr && innermost->release(memory)) return true;
  return kept_places.take(memory);
}

PlacementScope::PlacementScope(std::vector<Place> places)
    : places_(std::move(places)), outer_(innermost) {
  innermost = this;
}

PlacementScope::~PlacementScope() {
  SPILLWAY_ASSERT(innermost == this);
  innermost = outer_;
  for (const Place& place : places_)
    if (place.claimed) kept_places.add(place.address);
}

bool PlacementScope::has_claims() const {
  return std::any_of(places_.begin(), places_.end(),
                     [](const Place& place) { return place.claimed; });
}

void* PlacementScope::claim(std::size_t size) noexcept {
  if (!takes_claims_) return nullptr;
  void* address = nullptr;
  for (Place& place : places_) {
    if (place.bytes != size) continue;
    const std::uint32_t block = place.blocks++;
    if (address != nullptr || place.claimed || block < place.after) continue;
    place.claimed = true;
    place.claimed_as = block;
    address = place.address;
  }
  return address;
}

bool PlacementScope::release(void* memory) noexcept {
  for (Place& place : places_) {
    if (!place.claimed || place.address != memory) continue;
    place.claimed = false;
    return true;
  }
  // A block of an outer scope may be given back while an inner one is open.
  return outer_ != nullptr && outer_->release(memory);
}

}  // namespace spillway::recompute
