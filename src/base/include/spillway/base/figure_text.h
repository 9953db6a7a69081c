#pragma once

#include <string>

namespace spillway {

/// Three significant digits: "2.81 s", "31.2 ms", "470 µs", "0 s".
std::string seconds_text(double seconds);

/// "31.2 per second"; whole numbers from a hundred on.
std::string rate_text(double per_second);

/// "4.1 %"
std::string percent_text(double share);

/// "+4.1 %", "-0.3 %", "+0.0 %": a difference.
std::string signed_percent_text(double share);

}  // namespace spillway
