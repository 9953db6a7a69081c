#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "spillway/planner/step_events.h"
#include "spillway/planner/swap_plan.h"

namespace spillway::planner {

/// One direction of one tier: a queue of values and the chunk in flight.
struct Channel {
  std::deque<ValueIndex> queue;
  ValueIndex active = profile::kNoValue;  ///< kNoValue with `chunk` > 0: its value died meanwhile.
  std::uint32_t chunk = 0;                ///< Pages in flight; 0: idle.
  bool is_cancelled = false;
  double work_left = 0.0;         ///< Pages.
  double pages_per_second = 0.0;  ///< With everything else idle.
  TransferEvent event;            ///< Of the chunk, as far as known.
  double fixed_pages = 0.0;       ///< Moved in the fixed time of a chunk that begins by itself.
  double ended = -1.0;            ///< The chunk before.
};

/// The channels of a step: writes and reads of the near tier (or the only one), then those of the
/// far one.
template <std::size_t kTiers>
using Channels = std::array<Channel, 2 * kTiers>;

/// A set of busy channels: bit i stands for channel i.
using BusyChannels = unsigned;

/// What is left to each channel of its own rate, by the set of busy ones.
template <std::size_t kTiers>
using ChannelShares = std::array<std::array<double, 2 * kTiers>, std::size_t{1} << 2 * kTiers>;

/// Sets rates and fixed times.
void set_rates(const SwapLimits& limits, Channels<1>& channels);
void set_rates(const SwapLimits& limits, Channels<2>& channels);

/// Both directions of a tier at once have its `duplex_share`. Bytes of the far tier pass the link
/// of the near one, too: beside near ones they get half of it, or what the far tier can take.
void set_shares(const SwapLimits& limits, ChannelShares<1>& shares);
void set_shares(const SwapLimits& limits, ChannelShares<2>& shares);

}  // namespace spillway::planner
