#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <ostream>

namespace spillway {

/// Names one storage from its allocation to its end, in every folder. Records of live storages lie
/// in slots; a slot is used again by a later storage, which then has another generation, and
/// engines of several devices begin with different ones. So no id names two storages: a slot's
/// generation comes round after 16 million of them. The default value is "none".
class StorageId {
 public:
  constexpr StorageId() = default;
  constexpr StorageId(std::uint32_t slot, std::uint32_t generation)
      : slot_(slot), generation_(generation) {}

  constexpr bool is_some() const { return slot_ != kNoSlot; }
  /// For tables of live storages: dense, small numbers.
  constexpr std::uint32_t slot() const { return slot_; }
  constexpr std::uint32_t generation() const { return generation_; }
  constexpr auto operator<=>(const StorageId&) const = default;

 private:
  static constexpr std::uint32_t kNoSlot = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t slot_ = kNoSlot;
  std::uint32_t generation_ = 0;
};

inline std::ostream& operator<<(std::ostream& out, StorageId id) {
  return id.is_some() ? out << id.slot() << '.' << id.generation() : out << "none";
}

}  // namespace spillway

template <>
struct std::hash<spillway::StorageId> {
  std::size_t operator()(spillway::StorageId id) const noexcept {
    // Slots are dense, and generations small: both count.
    return std::hash<std::uint64_t>()(id.slot() +
                                      std::uint64_t{id.generation()} * 0x9E3779B97F4A7C15ULL);
  }
};
