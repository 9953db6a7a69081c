#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::cluster {

/// One measured message.
struct TransferSample {
  double bytes = 0.0;
  double seconds = 0.0;
};

/// Reads rows "bytes,seconds", as tests of links print them. A first row of words, empty lines and
/// lines that begin with # are passed over. Throws ConfigError that begins with `name` and the line
/// for a row that is none; sizes are from 0 to 2^53 bytes, times above 0 up to 10^12 s.
std::vector<TransferSample> parse_samples(std::string_view text, const std::string& name);

/// Latency and rate, by least squares of the relative errors of latency + bytes/rate; a latency
/// below 0 becomes 0. Throws ConfigError for fewer than two sizes, or samples that say that more
/// bytes take less time.
LinkCosts fitted_link(std::span<const TransferSample> samples);

}  // namespace spillway::cluster
