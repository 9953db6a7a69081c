#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spillway/base/rank.h"

namespace spillway::allreduce {

/// What a rank does to add up one round: an array that is cut into `slices`, with room for `staged`
/// slices beside it.
struct Step {
  /// A number of room beside the array; none: the slice's own place in it.
  using Place = std::optional<std::uint32_t>;
  enum class Kind : std::uint8_t {
    kSend,     ///< The slice, from its own place.
    kReceive,  ///< The slice, into `place`.
    kAdd,      ///< The slice at all `operands`, one after another, into its own place.
    kScale,    ///< The slice becomes the result: it is multiplied by the factor.
  };
  Kind kind = Kind::kSend;
  std::uint32_t slice = 0;
  Rank peer{};
  std::uint32_t message = 0;  ///< Counts those of the round between two ranks, in each direction.
  Place place{};
  std::vector<Place> operands{};

  std::uint32_t waits = 0;                 ///< How many earlier steps have to have ended.
  std::vector<std::uint32_t> followers{};  ///< Later ones that wait for this one.
};

/// Steps that begin as soon as no earlier one has business with the same places.
struct Program {
  std::uint32_t slices = 1;
  std::uint32_t staged = 0;
  std::vector<Step> steps;
};

/// Each rank owns a slice, adds all ranks' in the order of ranks, and sends the result to all.
Program ordered_program(Rank rank, std::uint32_t ranks);

/// Slice s travels around the ring of ranks from s + 1 to s, and each adds its own to it.
Program ring_program(Rank rank, std::uint32_t ranks);

/// Pairs of neighbours add up, then pairs of pairs, …; ranks beyond a power of two add theirs
/// before.
Program tree_program(Rank rank, std::uint32_t ranks);

/// The first rank of each host adds up the host's in the order of ranks; these ranks do the same as
/// a ring or a tree, and send the result to the others of their hosts.
Program two_level_program(Rank rank, const std::vector<std::string>& hosts, bool is_small);

}  // namespace spillway::allreduce
