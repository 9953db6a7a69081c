#pragma once

#include <cstdint>

namespace spillway::transport::mpi {

/// Two communicators of our own, so that nothing of the program is ever taken for ours.
enum class Channel : std::int32_t { kEnvelopes, kData };

enum class ThreadSupport : std::int32_t { kSingle, kFunneled, kSerialized, kMultiple };

inline constexpr std::int32_t kAnyRank = -1;

/// How the transfer of this id came out.
struct ShimEnd {
  std::uint64_t id;
  std::uint64_t bytes;
  std::int32_t peer;
  std::int32_t error;  ///< 0, or a code of MPI.
};

struct ShimState {
  std::int32_t is_initialised;
  std::int32_t is_finalised;
  ThreadSupport threads;  ///< Where it is initialised and not finalised.
};

struct ShimWorld {
  std::int32_t rank;
  std::int32_t ranks;
  std::int32_t most_tag;
};

/// The site's MPI without any type of its own, which differ between MPIs: a module that is compiled
/// once for each of their ABIs returns this table. One thread calls all of it. Functions return 0,
/// or a code of MPI.
struct Shim {
  std::int32_t (*find_state)(ShimState* state);
  std::int32_t (*initialise)(ThreadSupport* threads);  ///< Asks for kMultiple.
  /// Makes the channels. All ranks, as with the next two.
  std::int32_t (*open)(ShimWorld* world);
  std::int32_t (*gather)(const void* mine, std::int32_t bytes, void* all);
  std::int32_t (*find_ranks_here)(std::uint8_t* is_here);  ///< For each rank.
  std::int32_t (*send)(std::uint64_t id, Channel channel, std::int32_t to, std::int32_t tag,
                       const void* bytes, std::int32_t count, std::int32_t is_synchronous);
  std::int32_t (*receive)(std::uint64_t id, Channel channel, std::int32_t from, std::int32_t tag,
                          void* bytes, std::int32_t count);
  /// The transfers that have ended since the call before this one; good until the next call.
  std::int32_t (*progress)(const ShimEnd** ended, std::int32_t* count);
  /// Gives up the receives that are left, and the channels, and finalises MPI where it is ours.
  std::int32_t (*close)(std::int32_t is_ours);
  void (*abort)(std::int32_t code);
  void (*describe_error)(std::int32_t code, char* text, std::int32_t room);
};

/// Throws TransportError where MPI has failed in `what`, with its words.
void check_mpi(const Shim& shim, std::int32_t error, const char* what);

/// The one symbol of a module. Its name changes with the table.
inline constexpr char kShimSymbol[] = "spillway_mpi_shim_1";
using ShimEntry = const Shim* (*)();

}  // namespace spillway::transport::mpi
