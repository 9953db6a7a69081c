#include "spillway/base/bytes.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ostream>
#include <span>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"
#include "spillway/base/sizes_apart.h"

namespace spillway {
namespace {

struct Unit {
  const char* name;
  double factor;
};

constexpr std::array<Unit, 13> kUnits{{{"B", 1.0},
                                       {"KiB", 1024.0},
                                       {"MiB", 1048576.0},
                                       {"GiB", 1073741824.0},
                                       {"TiB", 1099511627776.0},
                                       {"KB", 1e3},
                                       {"MB", 1e6},
                                       {"GB", 1e9},
                                       {"TB", 1e12},
                                       {"K", 1024.0},
                                       {"M", 1048576.0},
                                       {"G", 1073741824.0},
                                       {"T", 1099511627776.0}}};

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(a[i])) !=
        std::tolower(static_cast<unsigned char>(b[i])))
      return false;
  }
  return true;
}

std::string_view without_spaces(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// "4MiB or 4GiB": the sizes with this number that users name, from the block of a disk to all of
/// one. Bytes where there are none.
std::string with_units(const std::string& number, double value) {
  constexpr double kLeast = 65536.0;
  constexpr double kMost = 1099511627776.0;
  std::vector<std::string> sizes;
  for (const Unit& unit : std::span(kUnits).first(4))
    if (value * unit.factor >= kLeast && value * unit.factor < kMost)
      sizes.push_back(message("{}{}", number, unit.name));
  return sizes.empty() ? message("{}B", number) : listed(sizes, "or");
}

}  // namespace

std::string to_string(Bytes size) {
  static constexpr std::array<const char*, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(size.count());
  std::size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kNames.size()) {
    value /= 1024.0;
    ++unit;
  }
  const int digits = unit == 0 || value >= 100.0 ? 0 : value >= 10.0 ? 1 : 2;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*f %s", digits, value, kNames[unit]);
  return text.data();
}

SizesApart sizes_apart(Bytes first, Bytes second) {
  SizesApart shown{to_string(first), to_string(second)};
  if (first == second || shown.first != shown.second) return shown;
  return {std::to_string(first.count()) + " B", std::to_string(second.count()) + " B"};
}

Bytes parse_bytes(std::string_view text) {
  const std::string_view trimmed = without_spaces(text);
  double value = 0.0;
  const auto [end, status] =
      std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(), value);
  if (status != std::errc() || !std::isfinite(value) || value < 0.0)
    throw ConfigError("not a size: '{}' (write a number with a unit, as 512KiB or 4GiB)",
                      shown_text(text));
  const auto unit_name =
      without_spaces(trimmed.substr(static_cast<std::size_t>(end - trimmed.data())));
  if (unit_name.empty())
    throw ConfigError("size without a unit: '{}' (write for example {})", shown_text(text),
                      with_units(shown_text(trimmed), value));
  for (const Unit& unit : kUnits) {
    if (!equal_ignoring_case(unit.name, unit_name)) continue;
    const double count = value * unit.factor;
    if (count >= 9.2e18) throw ConfigError("size too large: '{}'", shown_text(text));
    return Bytes(static_cast<std::uint64_t>(std::llround(count)));
  }
  throw ConfigError("unknown unit '{}' in '{}' (known: B KiB MiB GiB TiB KB MB GB TB, and K M G T "
                    "for KiB to TiB)",
                    shown_text(unit_name), shown_text(text));
}

std::ostream& operator<<(std::ostream& out, Bytes size) { return out << to_string(size); }

}  // namespace spillway
