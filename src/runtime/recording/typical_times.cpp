#include "spillway/runtime/recording/typical_times.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "spillway/base/median.h"

namespace spillway::runtime {

namespace {

Duration sum_of(const std::vector<Duration>& times) {
  return std::reduce(times.begin(), times.end());
}

Duration median_sum(const std::vector<std::vector<Duration>>& steps) {
  std::vector<Duration> sums;
  for (const auto& step : steps) sums.push_back(sum_of(step));
  return median(sums);
}

std::vector<std::vector<Duration>> all_alone(const StepTimes& steps, double slowdown) {
  std::vector<std::vector<Duration>> times;
  for (const OpTimes& step : steps) times.push_back(times_alone(step, slowdown));
  return times;
}

}  // namespace

OpTimes op_times_of(const profile::RecordedStep& step) {
  OpTimes times;
  for (const auto& op : step.tape.ops) times.measured.push_back(op.time);
  times.moved = step.moved_of_op;
  return times;
}

std::vector<Duration> times_alone(const OpTimes& step, double slowdown) {
  constexpr std::int64_t kMostParts = 2;
  std::vector<Duration> times = step.measured;
  double lost_ns = 0.0;
  for (std::size_t op = 0; op < std::min(times.size(), step.moved.size()); ++op) {
    lost_ns += 1e9 * slowdown * static_cast<double>(step.moved[op].count());
    const std::int64_t most = times[op].count() / kMostParts;
    const std::int64_t taken = std::min<std::int64_t>(most, std::llround(lost_ns));
    times[op] -= Duration(taken);
    lost_ns -= static_cast<double>(taken);
  }
  return times;
}

Duration typical_time(const StepTimes& steps, double slowdown) {
  return median_sum(all_alone(steps, slowdown));
}

std::vector<Duration> typical_op_times(const StepTimes& steps, double slowdown) {
  const auto times = all_alone(steps, slowdown);
  std::vector<Duration> typical;
  std::vector<Duration> same;
  for (std::size_t op = 0; op < times.front().size(); ++op) {
    same.clear();
    for (const auto& step : times) same.push_back(step[op]);
    typical.push_back(median(same));
  }
  const Duration sum = sum_of(typical);
  if (sum == Duration{0}) return typical;
  const double scale = seconds(median_sum(times)) / seconds(sum);
  for (Duration& time : typical)
    time = Duration(std::llround(static_cast<double>(time.count()) * scale));
  return typical;
}

}  // namespace spillway::runtime
