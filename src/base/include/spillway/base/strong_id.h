#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>

namespace spillway {

/// An index that cannot be mixed up with one of another kind: `using SlotId = StrongId<struct
/// SlotTag>`. The default value is "none".
template <typename Tag, typename Representation = std::uint32_t>
class StrongId {
 public:
  static constexpr Representation kNone = static_cast<Representation>(-1);

  constexpr StrongId() = default;
  constexpr explicit StrongId(Representation value) : value_(value) {}

  constexpr Representation value() const { return value_; }
  constexpr bool is_some() const { return value_ != kNone; }
  constexpr auto operator<=>(const StrongId&) const = default;

 private:
  Representation value_ = kNone;
};

template <typename Tag, typename Representation>
std::ostream& operator<<(std::ostream& out, StrongId<Tag, Representation> id) {
  return id.is_some() ? out << id.value() : out << "none";
}

}  // namespace spillway

template <typename Tag, typename Representation>
struct std::hash<spillway::StrongId<Tag, Representation>> {
  std::size_t operator()(spillway::StrongId<Tag, Representation> id) const noexcept {
    return std::hash<Representation>()(id.value());
  }
};
