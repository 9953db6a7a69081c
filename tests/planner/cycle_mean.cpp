#include "cycle_mean.h"

#include <algorithm>
#include <limits>

namespace spillway::planner {

/// Karp: the least over the ends of the longest walks of their worst mean since any step before.
double least_cycle_mean(const std::vector<StepEdge>& edges, std::size_t state_count) {
  constexpr double kUnreached = std::numeric_limits<double>::infinity();
  const std::size_t count = state_count;
  std::vector<std::vector<double>> walks(count + 1, std::vector<double>(count, kUnreached));
  walks[0][0] = 0;
  for (std::size_t length = 0; length < count; ++length) {
    for (const StepEdge& edge : edges) {
      double& best = walks[length + 1][edge.to];
      best = std::min(best, walks[length][edge.from] + edge.cost);
    }
  }
  double least = kUnreached;
  for (std::size_t end = 0; end < count; ++end) {
    if (walks[count][end] == kUnreached) continue;
    double worst = 0;
    for (std::size_t length = 0; length < count; ++length) {
      if (walks[length][end] == kUnreached) continue;
      worst = std::max(
          worst, (walks[count][end] - walks[length][end]) / static_cast<double>(count - length));
    }
    least = std::min(least, worst);
  }
  return least;
}

}  // namespace spillway::planner
