#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <type_traits>

#include "spillway/base/rank.h"

namespace spillway::transport::nccl {

/// The ranks that take part in something: a pair, or a group that was made at the start.
struct Circle {
  std::uint32_t group = 0;  ///< 0: the pair with `peer`.
  Rank peer{};

  auto operator<=>(const Circle&) const = default;
};

/// One thing that the ranks of a circle do together, as one of them asks for it. Of a pair a
/// message: `place` is twice its stream, and one more where it goes to the lower rank.
struct Request {
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;
  std::uint32_t place = 0;
  std::uint32_t kind = 0;  ///< Of a group: what is done with the bytes, and by which root.

  bool is_same_as(const Request& other) const {
    return number == other.number && place == other.place;
  }
  bool fits(const Request& other) const { return bytes == other.bytes && kind == other.kind; }
};

/// What ranks tell one another of the order in which their devices work.
struct Letter {
  enum class Kind : std::uint32_t {
    kOffer,   ///< To the first rank of a circle: I am asked for these.
    kHold,    ///< Along the circle: these are next; take on nothing else until you hear of it.
    kGo,      ///< From its last rank: they have their place.
    kRefuse,  ///< From its first rank: `about` asks for something else than you do,
    kMiss,    ///< or asks for nothing any more.
    kEnded,   ///< My program asks for nothing more.
    kAsk,     ///< Are you there?
    kAnswer,
    kLast,  ///< Nothing follows.
  };
  static constexpr std::size_t kMost = 32;

  Kind kind = Kind::kAsk;
  std::uint32_t group = 0;  ///< 0: sender and receiver are a pair.
  std::uint32_t count = 0;
  std::uint32_t about = 0;
  std::array<Request, kMost> requests{};
};
static_assert(std::is_trivially_copyable_v<Letter>);

}  // namespace spillway::transport::nccl
