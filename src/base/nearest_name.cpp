#include "spillway/base/nearest_name.h"

#include <algorithm>
#include <vector>

#include "spillway/base/error.h"

namespace spillway {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the usual table; the oldest serves swapped neighbours.
  std::vector<std::size_t> before_last(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> current(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool differs = a[i - 1] != b[j - 1];
      current[j] = std::min({last[j] + 1, current[j - 1] + 1, last[j - 1] + (differs ? 1 : 0)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        current[j] = std::min(current[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, current);
  }
  return last[b.size()];
}

std::optional<std::string_view> nearest_name(std::string_view mistyped,
                                             std::span<const std::string_view> names) {
  std::optional<std::string_view> best;
  std::size_t best_distance = 0;
  for (const std::string_view name : names) {
    const std::size_t distance = edit_distance(mistyped, name);
    if (best && distance >= best_distance) continue;
    best = name;
    best_distance = distance;
  }
  const std::size_t bearable = std::max<std::size_t>(1, mistyped.size() / 2);
  return best && best_distance <= bearable ? best : std::nullopt;
}

std::string hint_for(std::string_view mistyped, std::span<const std::string_view> names) {
  if (const auto nearest = nearest_name(mistyped, names))
    return message(" (did you mean '{}'?)", *nearest);
  std::string list;
  for (const std::string_view name : names) (list += ' ') += name;
  return " (known:" + list + ")";
}

}  // namespace spillway
