#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "spillway/base/bytes.h"
#include "spillway/base/clock.h"

namespace spillway {

/// Three significant digits: "2.81 s", "31.2 ms", "470 µs", "0 s".
std::string seconds_text(double seconds);

/// "31 s", without the part of a second.
std::string whole_seconds_text(Duration time);

/// What is worn or kept lasts: "17.2 days", "36 years", "more than 1000 years".
std::string days_text(double days);

/// "31.2 per second"; whole numbers from a hundred on.
std::string rate_text(double per_second);

/// "4.1 %"
std::string percent_text(double share);

/// "+4.1 %", "-0.3 %", "+0.0 %": a difference.
std::string signed_percent_text(double share);

/// How far a figure lies above its lower bound, as a share; 0 below it, where rounding alone keeps
/// them apart, since sums in another order differ in their last bits, and where there is no bound.
double share_above(double value, double bound);

/// As many digits as it takes to read the same number back: "0.1", "2.5e+20".
std::string all_digits(double value);

/// "1 rank", "2 ranks", "3 micro-batches".
std::string counted(std::uint64_t count, std::string_view word);

/// A size as people type it behind an option, in whole MiB: "8704MiB", "3GiB". It is rounded up, so
/// that whoever does as a message says has enough.
std::string as_option(Bytes size);

}  // namespace spillway
