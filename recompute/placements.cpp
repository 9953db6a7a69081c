#include "spillway/recompute/placements.h"

#include <utility>

#include "spillway/base/assert.h"

namespace spillway::recompute {
namespace {

constinit thread_local PlacementScope* innermost = nullptr;

}  // namespace

void* claim_placement(std::size_t size) noexcept {
  return innermost == nullptr ? nullptr : innermost->claim(size);
}

bool release_placement(void* memory) noexcept {
  return innermost != nullptr && innermost->release(memory);
}

PlacementScope::PlacementScope(std::vector<Place> places)
    : places_(std::move(places)), outer_(innermost) {
  innermost = this;
}

PlacementScope::~PlacementScope() {
  SPILLWAY_ASSERT(innermost == this);
  innermost = outer_;
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
