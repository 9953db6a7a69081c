#include "planning/planning_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace spillway::cli {

namespace {

template <typename... Args>
std::string formatted(const char* pattern, Args... args) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), pattern, args...);
  return text.data();
}

// "…" is one letter of three bytes.
std::size_t letters(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::string seconds_text(double seconds) {
  const char* unit = "s";
  double value = seconds;
  if (seconds != 0.0 && std::abs(seconds) < 1e-3) {
    value *= 1e6;
    unit = "µs";
  } else if (seconds != 0.0 && std::abs(seconds) < 1.0) {
    value *= 1e3;
    unit = "ms";
  }
  const int digits = value == 0.0 || value >= 100.0 ? 0 : value >= 10.0 ? 1 : 2;
  return formatted("%.*f %s", digits, value, unit);
}

std::string percent_text(double share) {
  // What rounds to nothing has no sign.
  return formatted("%.1f %%", std::abs(share) < 0.0005 ? 0.0 : 100.0 * share);
}

std::string ratio_text(double value, double of) {
  return of > 0.0 ? formatted("%.2f", value / of) : "-";
}

std::string table_text(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], letters(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - letters(row[i]), ' ');
      line += i == 0 ? row[i] + padding : "  " + padding + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace spillway::cli
