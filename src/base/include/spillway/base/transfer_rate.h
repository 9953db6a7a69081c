#pragma once

#include <string>
#include <string_view>

namespace spillway {

// What disks and links have, in bytes/s: from a floppy disk to what no memory moves. Anything else
// is a slip, and plans built on it would be senseless.
inline constexpr double kLeastTransferRate = 1e5;
inline constexpr double kMostTransferRate = 1e12;

inline constexpr bool is_transfer_rate(double bytes_per_second) {
  return bytes_per_second >= kLeastTransferRate && bytes_per_second <= kMostTransferRate;
}

/// "WHAT is 0 bytes/s, not from 0.0001 to 1000 GB/s"; empty for a rate that some disk or link has.
std::string rate_problem(std::string_view what, double bytes_per_second);

}  // namespace spillway
