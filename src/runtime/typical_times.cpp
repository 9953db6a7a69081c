#include "typical_times.h"

#include <cmath>
#include <numeric>

#include "spillway/base/median.h"

namespace spillway::runtime {

Duration typical_time(const StepTimes& steps) {
  std::vector<Duration> sums;
  for (const auto& step : steps) sums.push_back(std::reduce(step.begin(), step.end()));
  return median(sums);
}

std::vector<Duration> typical_op_times(const StepTimes& steps) {
  std::vector<Duration> typical;
  std::vector<Duration> same;
  for (std::size_t op = 0; op < steps.front().size(); ++op) {
    same.clear();
    for (const auto& step : steps) same.push_back(step[op]);
    typical.push_back(median(same));
  }
  const Duration sum = std::reduce(typical.begin(), typical.end());
  if (sum == Duration{0}) return typical;
  const double scale = seconds(typical_time(steps)) / seconds(sum);
  for (Duration& time : typical)
    time = Duration(std::llround(static_cast<double>(time.count()) * scale));
  return typical;
}

}  // namespace spillway::runtime
