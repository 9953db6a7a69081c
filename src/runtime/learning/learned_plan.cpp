#include "learned_plan.h"

#include <algorithm>
#include <utility>

#include "spillway/base/median.h"
#include "spillway/planner/step_bound.h"

namespace spillway::runtime {

using profile::StepTape;

namespace {

constexpr std::size_t kTimesKept = 5;  // Steps of a shape.
constexpr std::size_t kRoundsKept = 16;

}  // namespace

double Forecast::bound_seconds() const {
  StepTape timed = *tape;
  for (std::size_t op = 0; op < timed.ops.size(); ++op) timed.ops[op].time = op_times[op];
  timed.replay_extra_per_page = replay_extra_per_page;
  // Where repetitions do not settle, the model tells the mean of a few of them, and the bound is
  // one of very many.
  return std::min(seconds, planner::bound_plan(timed, limits).step_seconds);
}

LearnedPlan::~LearnedPlan() {
  if (draft != nullptr && draft->work != nullptr) draft->work->cancel();
}

void LearnedPlan::note_round(Round round) {
  if (!std::exchange(is_settled_, true)) return;
  if (latest_.size() >= kRoundsKept) latest_.pop_front();
  round.forecast = forecast;
  latest_.push_back(round);
}

std::shared_ptr<const Forecast> LearnedPlan::typical_forecast() const {
  std::vector<std::shared_ptr<const Forecast>> forecasts;
  for (const Round& round : latest_)
    if (round.forecast != nullptr) forecasts.push_back(round.forecast);
  if (forecasts.empty()) return forecast;
  const auto middle = forecasts.begin() + static_cast<std::ptrdiff_t>(forecasts.size() / 2);
  std::nth_element(forecasts.begin(), middle, forecasts.end(),
                   [](const auto& a, const auto& b) { return a->seconds < b->seconds; });
  return *middle;
}

double LearnedPlan::typical_seconds() const {
  std::vector<double> times;
  for (const Round& round : latest_) times.push_back(round.seconds);
  return median(times);
}

Bytes LearnedPlan::highest_peak() const {
  Bytes highest;
  for (const Round& round : latest_) highest = std::max(highest, round.peak);
  return highest;
}

std::uint32_t LearnedPlan::pages_made(profile::OpIndex place) const {
  std::uint32_t pages = 0;
  for (const profile::ValueIndex value : plan.swaps.births.of(place))
    pages += plan.steps.tape.values[value].pages;
  return pages;
}

void LearnedPlan::set(planner::StepPlan made) {
  latest_.clear();
  is_settled_ = false;
  forecast = nullptr;
  tape = std::make_shared<const StepTape>(step.tape);
  plan = std::move(made);
  const planner::RewrittenTape& rewritten = plan.steps;
  at = planner::places_in(rewritten);
  is_replayed.assign(step.tape.ops.size(), false);
  for (const planner::Replay& replay : plan.replays) is_replayed[replay.op] = true;
  drops = planner::drops_per_op(step.tape, rewritten);
}

void StepShape::note_times(OpTimes of_step) {
  if (times.size() >= kTimesKept) times.pop_back();
  times.push_front(std::move(of_step));
}

}  // namespace spillway::runtime
