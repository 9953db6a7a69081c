#include "spillway/base/figure_text.h"

#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "spillway/base/error.h"

namespace spillway {
namespace {

template <typename... Args>
std::string formatted(const char* pattern, Args... args) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), pattern, args...);
  return text.data();
}

/// Behind the point, for three significant ones where there are so many.
int digits_of(double value) {
  const double size = std::abs(value);
  return size == 0.0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
}

// What rounds to nothing has no sign.
double hundredfold(double share) { return std::abs(share) < 0.0005 ? 0.0 : 100.0 * share; }

}  // namespace

std::string seconds_text(double seconds) {
  const char* unit = "s";
  double value = seconds;
  // From where the digits round up to the next unit: 999.6 ms are 1.00 s.
  if (seconds != 0.0 && std::abs(seconds) < 0.9995e-3) {
    value *= 1e6;
    unit = "µs";
  } else if (seconds != 0.0 && std::abs(seconds) < 0.9995) {
    value *= 1e3;
    unit = "ms";
  }
  return formatted("%.*f %s", digits_of(value), value, unit);
}

std::string whole_seconds_text(Duration time) {
  return message("{} s", std::chrono::duration_cast<std::chrono::seconds>(time).count());
}

std::string days_text(double days) {
  constexpr double kDaysOfYear = 365.25;
  constexpr double kMostYears = 1000.0;  // Nobody waits for more.
  const double years = days / kDaysOfYear;
  if (years > kMostYears) return formatted("more than %.0f years", kMostYears);
  if (years >= 2.0) return formatted("%.*f years", years < 9.95 ? 1 : 0, years);
  return formatted("%.*f days", digits_of(days), days);
}

std::string rate_text(double per_second) {
  return formatted("%.*f per second", digits_of(per_second), per_second);
}

std::string percent_text(double share) { return formatted("%.1f %%", hundredfold(share)); }

std::string signed_percent_text(double share) { return formatted("%+.1f %%", hundredfold(share)); }

double share_above(double value, double bound) {
  constexpr double kRounding = 1e-9;
  const double share = bound > 0.0 ? value / bound - 1.0 : 0.0;
  return share < kRounding ? 0.0 : share;
}

std::string all_digits(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end.ptr};
}

std::string counted(std::uint64_t count, std::string_view word) {
  return message("{} {}{}", count, word, count == 1 ? "" : word.ends_with("ch") ? "es" : "s");
}

std::string as_option(Bytes size) {
  const std::uint64_t mebibytes = (size + 1_MiB - 1_B) / 1_MiB;
  if (mebibytes > 0 && mebibytes % 1024 == 0) return message("{}GiB", mebibytes / 1024);
  return message("{}MiB", mebibytes);
}

}  // namespace spillway
