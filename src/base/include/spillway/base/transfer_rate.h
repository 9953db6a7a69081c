#pragma once

#include <compare>
#include <iosfwd>
#include <limits>
#include <string>
#include <string_view>

#include "spillway/base/bytes.h"

namespace spillway {

/// What a disk, a link or memory moves in a second. It is made of bytes per second and nothing
/// else; what that is in seconds, it says itself. 0 where nothing moves, or nobody has measured.
class TransferRate {
 public:
  constexpr TransferRate() = default;
  constexpr explicit TransferRate(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}
  /// Of links whose transfers take no time for their bytes.
  static constexpr TransferRate unlimited() {
    return TransferRate(std::numeric_limits<double>::infinity());
  }

  constexpr double bytes_per_second() const { return bytes_per_second_; }
  constexpr bool is_unlimited() const { return *this == unlimited(); }
  constexpr bool is_none() const { return !(bytes_per_second_ > 0.0); }

  constexpr double seconds_for(double bytes) const { return bytes / bytes_per_second_; }
  constexpr double seconds_for(Bytes size) const {
    return seconds_for(static_cast<double>(size.count()));
  }
  /// The bytes of so many seconds, which may be endless: none where nothing moves.
  constexpr double bytes_in(double seconds) const {
    return is_none() ? 0.0 : seconds * bytes_per_second_;
  }

  constexpr auto operator<=>(const TransferRate&) const = default;
  constexpr TransferRate& operator+=(TransferRate other) {
    bytes_per_second_ += other.bytes_per_second_;
    return *this;
  }

 private:
  double bytes_per_second_ = 0.0;
};

constexpr TransferRate operator+(TransferRate a, TransferRate b) { return a += b; }
constexpr TransferRate operator-(TransferRate a, TransferRate b) {
  return TransferRate(a.bytes_per_second() - b.bytes_per_second());
}
constexpr double operator/(TransferRate a, TransferRate b) {
  return a.bytes_per_second() / b.bytes_per_second();
}
constexpr TransferRate operator*(TransferRate rate, double share) {
  return TransferRate(rate.bytes_per_second() * share);
}
constexpr TransferRate operator/(TransferRate rate, double sharers) {
  return TransferRate(rate.bytes_per_second() / sharers);
}

/// "3.91 GB/s" (10^9 bytes).
std::string to_string(TransferRate rate);
std::ostream& operator<<(std::ostream& out, TransferRate rate);

/// A transfer over a link takes its latency, and its bytes at the rate.
struct LinkCosts {
  double latency_seconds = 0.0;  ///< On top of each transfer, without keeping the link busy.
  TransferRate rate = TransferRate::unlimited();

  bool operator==(const LinkCosts&) const = default;
};

// What disks and links have: from a floppy disk to what no memory moves. Anything else is a slip,
// and plans built on it would be senseless.
inline constexpr TransferRate kLeastTransferRate{1e5};
inline constexpr TransferRate kMostTransferRate{1e12};

/// "WHAT is 0 bytes/s, not from 0.0001 to 1000 GB/s"; empty for a rate that some disk or link has.
std::string rate_problem(std::string_view what, TransferRate rate);

}  // namespace spillway
