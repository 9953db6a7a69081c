#pragma once

#include <string>
#include <utility>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/base/clock.h"
#include "spillway/base/transfer_rate.h"
#include "spillway/transport/transport.h"

namespace spillway::transport {

/// What messages between two ranks take: `latency_seconds + rate.seconds_for(bytes)` each way.
struct MeasuredLink {
  std::uint32_t from = 0;  ///< Rank; of hosts, the first one of each.
  std::uint32_t to = 0;
  double latency_seconds = 0.0;  ///< Half of the median time there and back of a few bytes.
  TransferRate rate;             ///< Of the median of the large messages, less the latency.
  /// What the wall clock of `to` is ahead of that of `from`: its time halfway through the fastest
  /// way there and back, which took twice the error.
  double clock_offset_seconds = 0.0;
  double clock_error_seconds = 0.0;
};

struct SurveyOptions {
  std::uint32_t pings = 25;  ///< Small messages there and back.
  std::uint32_t trips = 5;   ///< Large ones there and back.
  Bytes largest{std::uint64_t{4} << 20};
  Duration longest_trip = std::chrono::milliseconds(20);  ///< A slow link gets smaller messages.
};

/// The pairs that are measured, by rounds. Of the ranks of a host, neighbours by turns, one pair
/// at a time; then the first ranks of all hosts, each with each, in rounds in which each host is in
/// one pair at most.
using RankPair = std::pair<std::uint32_t, std::uint32_t>;  ///< The lower rank first.
std::vector<std::vector<RankPair>> survey_rounds(const std::vector<std::string>& hosts);

/// The clocks of a rank.
struct SurveyClocks {
  const Clock& steady;
  const Clock& wall;  ///< One that hosts are to have in common, as time since 1970.
};

/// Measures all pairs of `survey_rounds`; on the first rank, returns them in order of their ranks.
/// All ranks call it with the same hosts, by rank. A pair takes about a quarter of a second at
/// most, or 50 ways there and back where these take longer. Throws TransportError for a message
/// that is lost.
std::vector<MeasuredLink> survey_links(Transport& transport, const std::vector<std::string>& hosts,
                                       const SurveyClocks& clocks,
                                       const SurveyOptions& options = {});

}  // namespace spillway::transport
