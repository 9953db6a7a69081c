#include "spillway/runtime/recording/profile_recording.h"

#include <algorithm>
#include <map>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/shown_text.h"
#include "spillway/profile/autograd_links.h"
#include "spillway/profile/step_joining.h"
#include "spillway/profile/value_classes.h"
#include "spillway/runtime/recording/op_text.h"

namespace spillway::runtime {

using profile::OpIndex;
using profile::OpKind;
using profile::RecordedStep;
using profile::StepProfile;
using profile::StepTape;
using profile::StorageClass;

namespace {

/// The difference of the quartiles, each the value nearest to it.
Duration quartile_range(std::vector<Duration>& values) {
  std::sort(values.begin(), values.end());
  const std::size_t last = values.size() - 1;
  return values[(3 * last + 2) / 4] - values[(last + 2) / 4];
}

}  // namespace

ProfileRecording::Shape* ProfileRecording::find_shape(std::uint64_t identity, std::size_t ops) {
  for (const auto& shape : shapes_)
    if (shape->identity == identity && shape->ops == ops) return shape.get();
  return nullptr;
}

ProfileRecording::Shape& ProfileRecording::shape_of(std::uint64_t identity, std::size_t ops) {
  if (Shape* const known = find_shape(identity, ops)) return *known;
  if (shapes_.size() >= kMostKinds) {
    // Never the most frequent one: of equally frequent ones that is the latest.
    shapes_.erase(
        std::min_element(shapes_.begin(), shapes_.end(), [](const auto& a, const auto& b) {
          return a->seen != b->seen ? a->seen < b->seen : a->last_seen < b->last_seen;
        }));
  }
  Shape& shape = *shapes_.emplace_back(std::make_unique<Shape>());
  shape.identity = identity;
  shape.ops = ops;
  return shape;
}

void ProfileRecording::note_small_parameters(Bytes bytes) {
  const std::lock_guard lock(mutex_);
  small_parameters_ = std::max(small_parameters_, bytes);
}

void ProfileRecording::note_step(std::uint64_t identity, const RecordedStep& step) {
  const std::lock_guard lock(mutex_);
  ++steps_;
  if (!step.is_whole) ++cut_steps_;
  if (!step.is_whole || step.tape.ops.empty()) {
    has_previous_ = false;
    return;
  }
  Shape& shape = shape_of(identity, step.tape.ops.size());
  ++shape.seen;
  shape.last_seen = steps_;
  shape.step = step;
  std::swap(shape.before, previous_);
  shape.has_before = has_previous_;
  previous_ = step;
  has_previous_ = true;
  if (!options_.is_timed_on_device) add_times(shape, op_times_of(step));
}

void ProfileRecording::note_times(std::uint64_t identity, const OpTimes& times) {
  const std::lock_guard lock(mutex_);
  // It may have been forgotten meanwhile.
  if (Shape* const shape = find_shape(identity, times.measured.size())) add_times(*shape, times);
}

void ProfileRecording::add_times(Shape& shape, OpTimes times) {
  if (shape.times.size() >= kMostTimes) shape.times.pop_back();
  shape.times.push_front(std::move(times));
  ++shape.measured;
  if (options_.steps == 0 || shapes_.size() < options_.kind) return;
  const Shape& wanted = *ranked()[options_.kind - 1];
  if (wanted.measured >= options_.steps && wanted.seen >= 2)
    is_complete_.store(true, std::memory_order_relaxed);
}

/// The kinds of step, most frequent first; of equally frequent ones the latest.
std::vector<const ProfileRecording::Shape*> ProfileRecording::ranked() const {
  std::vector<const Shape*> shapes;
  for (const auto& shape : shapes_) shapes.push_back(shape.get());
  std::sort(shapes.begin(), shapes.end(), [](const Shape* a, const Shape* b) {
    return a->seen != b->seen ? a->seen > b->seen : a->last_seen > b->last_seen;
  });
  return shapes;
}

bool ProfileRecording::has_steps() const {
  const std::lock_guard lock(mutex_);
  return steps_ > 0;
}

bool ProfileRecording::has_repeated() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(shapes_.begin(), shapes_.end(),
                     [](const auto& shape) { return shape->seen >= 2; });
}

std::string ProfileRecording::kinds_text() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> counts;
  for (const Shape* shape : ranked())
    if (shape->seen >= 2) counts.push_back(std::to_string(shape->seen));
  if (counts.size() < 2) return {};
  return message("kind {} of {}, which came {} times", options_.kind, counts.size(),
                 listed(counts));
}

void ProfileRecording::forget_steps() {
  const std::lock_guard lock(mutex_);
  shapes_.clear();
  has_previous_ = false;
  steps_ = cut_steps_ = 0;
}

void ProfileRecording::name_ops(const StepTape& tape, StepProfile& profile) const {
  std::map<std::pair<std::string, std::string>, std::uint32_t> numbers;
  for (const auto& op : tape.ops) {
    const OpKind kind = names_.kind_of(op.signature);
    const auto [entry, is_new] = numbers.try_emplace(
        {kind.name, kind.arguments}, static_cast<std::uint32_t>(profile.kinds.size()));
    if (is_new) profile.kinds.push_back(kind);
    profile.kind_of_op.push_back(entry->second);
  }
}

void ProfileRecording::set_phases(const RecordedStep& step, StepProfile& profile) {
  const bool is_known =
      std::any_of(step.autograd_of_op.begin(), step.autograd_of_op.end(),
                  [](const AutogradFacts& facts) { return facts.phase != OpPhase::kUnknown; });
  if (!is_known) return;
  for (const AutogradFacts& facts : step.autograd_of_op) profile.phase_of_op.push_back(facts.phase);
  profile.forward_of_op = profile::forward_operators(step.autograd_of_op);
}

void ProfileRecording::set_times(const Shape& shape, double slowdown, StepProfile& profile) {
  const std::vector<Duration> typical = typical_op_times(shape.times, slowdown);
  std::vector<std::vector<Duration>> steps;
  for (const OpTimes& step : shape.times) steps.push_back(times_alone(step, slowdown));
  std::vector<Duration> same;
  for (OpIndex op = 0; op < shape.ops; ++op) {
    same.clear();
    for (const auto& step : steps) same.push_back(step[op]);
    profile.tape.ops[op].time = typical[op];
    profile.spread_of_op.push_back(quartile_range(same));
  }
}

StepProfile ProfileRecording::profile(profile::ProfileOrigin origin, Bytes small_bytes,
                                      const profile::TransferRates& rates) const {
  const std::lock_guard lock(mutex_);
  const std::vector<const Shape*> kinds = ranked();
  if (kinds.empty() && cut_steps_ > 0)
    throw PlanError("no profile: no step was short enough to be recorded ({} were too long)",
                    cut_steps_);
  if (kinds.empty())
    throw PlanError(
        "no profile: no step was seen to end in which an operator used a tensor of --min-storage "
        "or more (let the trainer do at least three steps; where all its tensors are smaller, name "
        "a smaller --min-storage)");
  if (kinds.front()->seen < 2)
    throw PlanError(
        "no profile: of {} none was equal to another one, so nothing shows what repeats "
        "(let the trainer do more, of equal shapes)",
        counted(steps_, "step"));
  const auto repeated = std::count_if(kinds.begin(), kinds.end(),
                                      [](const Shape* shape) { return shape->seen >= 2; });
  if (options_.kind > static_cast<std::uint64_t>(repeated))
    throw PlanError("no profile of kind {}: only {} of step was seen to end twice (choose with "
                    "--kind, or let the trainer do more steps)",
                    options_.kind, counted(static_cast<std::uint64_t>(repeated), "kind"));
  const Shape& wanted = *kinds[options_.kind - 1];
  if (wanted.times.empty())
    throw PlanError("no profile: the device has told of none of {} equal steps yet what its "
                    "operators take, which is known when later steps end (let the trainer do more)",
                    wanted.seen);
  const RecordedStep* const only = &wanted.step;
  const RecordedStep joined =
      profile::join_steps({&only, 1}, wanted.has_before ? &wanted.before : nullptr);
  StepProfile profile;
  profile.page_size = options_.page_size;
  profile.origin = std::move(origin);
  profile.origin.source = "recorded";
  profile.origin.clock = options_.is_timed_on_device ? profile::kDeviceEvents : profile::kHostClock;
  profile.origin.steps = static_cast<std::uint32_t>(wanted.times.size());
  profile.small_bytes = small_bytes;
  profile.small_parameter_bytes = small_parameters_;
  profile.tape = joined.tape;
  name_ops(profile.tape, profile);
  set_phases(joined, profile);
  profile.rates = rates;
  set_times(wanted, rates.slowdown_seconds_per_byte(), profile);
  std::vector<StorageClass> noted;
  for (std::size_t i = 0; i < joined.origins.size(); ++i) {
    noted.push_back(joined.origins[i].holds);
    const Bytes bytes = joined.origins[i].bytes;
    const Bytes most = profile.page_size * profile.tape.values[i].pages;
    profile.bytes_of_value.push_back(bytes == Bytes(0) ? most : bytes);
  }
  profile.class_of_value = profile::classify_values(profile.tape, noted);
  std::replace(profile.class_of_value.begin(), profile.class_of_value.end(),
               profile::StorageClass::kWorkspace, profile::StorageClass::kActivation);
  check(profile);
  return profile;
}

}  // namespace spillway::runtime
