#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway::planner {

/// Sums over operators of a repeating step, in constant time. Stretches may run over the end of the
/// step, and several times around it.
class CircularSums {
 public:
  explicit CircularSums(const std::vector<double>& numbers) : before_(numbers.size() + 1, 0.0) {
    for (std::size_t op = 0; op < numbers.size(); ++op) before_[op + 1] = before_[op] + numbers[op];
  }

  double sum(std::size_t first, std::uint64_t length) const {
    const std::size_t op_count = before_.size() - 1;
    first %= op_count;
    const std::size_t end = first + length % op_count;
    double sum = static_cast<double>(length / op_count) * before_[op_count];
    sum += before_[std::min(end, op_count)] - before_[first];
    if (end > op_count) sum += before_[end - op_count];
    return sum;
  }

 private:
  std::vector<double> before_;
};

}  // namespace spillway::planner
