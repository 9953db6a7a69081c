#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway::recompute {

/// For the CPU allocator, at each allocation of `size` > 0 bytes: the address at which the calling
/// thread's replay wants a result of this size, or nullptr, also where no replay runs on the
/// thread. Memory that is claimed is not the allocator's: it must ask `release_placement` when the
/// block comes back.
void* claim_placement(std::size_t size) noexcept;

/// For the CPU allocator, at each release: whether `memory` was claimed by the calling thread's
/// replay. It is then free for the next claim, and the allocator has nothing to do. Also true,
/// once, for what a kernel has kept beyond its replay.
bool release_placement(void* memory) noexcept;

/// Addresses that a thread's allocations take while this lives. Scopes nest; the innermost counts.
class PlacementScope {
 public:
  struct Place {
    void* address = nullptr;
    std::size_t bytes = 0;
    /// So many blocks of its size are left to the allocator before.
    std::uint32_t after = 0;
    bool claimed = false;
    std::uint32_t claimed_as = 0;  ///< Number of its latest block among those of its size.
    std::uint32_t blocks = 0;      ///< Of its size, asked for so far.
  };

  explicit PlacementScope(std::vector<Place> places);
  ~PlacementScope();
  PlacementScope(const PlacementScope&) = delete;
  PlacementScope& operator=(const PlacementScope&) = delete;

  const std::vector<Place>& places() const { return places_; }
  void* claim(std::size_t size) noexcept;
  bool release(void* memory) noexcept;
  /// From now on nothing is claimed any more; what was claimed may still be released.
  void stop_claims() { takes_claims_ = false; }
  /// Whether some place was claimed and not released.
  bool has_claims() const;

 private:
  std::vector<Place> places_;
  bool takes_claims_ = true;
  PlacementScope* outer_;
};

}  // namespace spillway::recompute
