#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "spillway/transport/transport.h"

namespace spillway::split {

/// It writes the program's files, and speaks for all ranks.
inline constexpr Rank kFirst(0);

inline Rank rank_in_job(std::uint32_t ranks_of_shard, Rank shard, Rank rank) {
  return Rank(shard.value() * ranks_of_shard + rank.value());
}

/// Numbers of messages from here on are this folder's, in each stream; below are those of the moves
/// of pipeline/ownership, and of pipeline/agreement.
inline constexpr std::uint64_t kFirstNumber = std::uint64_t{1} << 62;

inline constexpr transport::Tag kFigures{transport::Stream::kControl, kFirstNumber};
inline constexpr transport::Tag kRefusal{transport::Stream::kControl, kFirstNumber + 1};
inline constexpr transport::Tag kRefusalOfAll{transport::Stream::kControl, kFirstNumber + 2};
inline constexpr transport::Tag kBudget{transport::Stream::kControl, kFirstNumber + 3};
// Of traces at the end (trace_exchange.cpp).
inline constexpr transport::Tag kTraceQuestion{transport::Stream::kControl, kFirstNumber + 4};
inline constexpr transport::Tag kTraceAnswer{transport::Stream::kControl, kFirstNumber + 5};
// Of ranks that wait until all have come.
inline constexpr transport::Tag kHere{transport::Stream::kControl, kFirstNumber + 6};
inline constexpr transport::Tag kAllAreHere{transport::Stream::kControl, kFirstNumber + 7};
// Of GPUs (device_messages.cpp).
inline constexpr transport::Tag kLeastPaged{transport::Stream::kControl, kFirstNumber + 8};
inline constexpr transport::Tag kLeastOfAll{transport::Stream::kControl, kFirstNumber + 9};
/// What the first rank decides where a step begins holds so many steps later: the programs of other
/// ranks may be ahead by as much without waiting for it.
inline constexpr std::uint64_t kAhead = 2;
/// From here on those of steps (rebalancing.cpp).
inline constexpr std::uint64_t kStepNumber = kFirstNumber + 1024;
/// From here on those of signals (held_signals.cpp).
inline constexpr std::uint64_t kSignalNumber = kFirstNumber + (std::uint64_t{1} << 59);
/// From here on those of pieces of traces.
inline constexpr std::uint64_t kFirstTracePiece = kFirstNumber + (std::uint64_t{1} << 58);
/// From here on those of exchanges between shards. From 2^63 on are those of pieces of the other
/// moves (device_transfer.cpp).
inline constexpr std::uint64_t kFirstAnnouncement = kFirstNumber + (std::uint64_t{1} << 60);

/// On the first rank: the value of each rank. Others send theirs, and get none. `wait(event, peer)`
/// waits for a message, and throws where it is lost.
template <typename Value, typename Wait>
std::vector<Value> gathered(transport::Transport& transport, transport::Tag tag, Value mine,
                            const Wait& wait) {
  if (transport.rank() != kFirst) {
    wait(transport.send(kFirst, tag, device::host_span_of(mine)), kFirst);
    return {};
  }
  std::vector<Value> all(transport.ranks());
  all.front() = mine;
  std::vector<device::Event> received(1);
  for (std::uint32_t rank = 1; rank < transport.ranks(); ++rank)
    received.push_back(transport.receive(Rank(rank), tag, device::host_span_of(all[rank])));
  for (std::uint32_t rank = 1; rank < transport.ranks(); ++rank) wait(received[rank], Rank(rank));
  return all;
}

/// The smallest value that a rank has, on all ranks.
template <typename Value, typename Wait>
Value least_of_all(transport::Transport& transport, transport::Tag tag, transport::Tag answer,
                   Value mine, const Wait& wait) {
  const std::vector<Value> all = gathered(transport, tag, mine, wait);
  if (transport.rank() != kFirst) {
    wait(transport.receive(kFirst, answer, device::host_span_of(mine)), kFirst);
    return mine;
  }
  mine = *std::min_element(all.begin(), all.end());
  for (std::uint32_t rank = 1; rank < transport.ranks(); ++rank)
    wait(transport.send(Rank(rank), answer, device::host_span_of(mine)), Rank(rank));
  return mine;
}

/// Waits until all ranks have come here.
template <typename Wait>
void meet(transport::Transport& transport, const Wait& wait) {
  least_of_all(transport, kHere, kAllAreHere, std::uint64_t{0}, wait);
}

}  // namespace spillway::split
