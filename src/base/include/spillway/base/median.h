#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace spillway {

/// The value in the middle, or the mean of the two there; a zero when there are none. Reorders the
/// values, so that callers can keep their memory.
template <typename T>
T median(std::vector<T>& values) {
  if (values.empty()) return T{};
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  const T lower = *std::max_element(values.begin(), middle);
  return lower + (*middle - lower) / 2;
}

/// Median and range of repeated measurements.
struct Spread {
  double median = 0.0;
  double least = 0.0;
  double most = 0.0;
};

/// Of any number of measurements but none.
inline Spread spread_of(std::vector<double> values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  Spread spread{0.0, *least, *most};
  spread.median = median(values);
  return spread;
}

}  // namespace spillway
