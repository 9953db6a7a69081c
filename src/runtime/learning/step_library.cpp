// Which step comes next, and whose plan it follows. plan_renewal.cpp makes the plans.

#include "step_library.h"

#include <algorithm>
#include <utility>

#include "spillway/runtime/recording/profile_recording.h"

namespace spillway::runtime {

using profile::OpSequence;
using profile::StepTape;

namespace {

constexpr std::size_t kHistory = 64;
constexpr std::int64_t kReplayPagesKept = 1 << 14;  // Half of them, from here on.
// On a device the first steps of a shape are measured, and one after so many others.
constexpr std::size_t kStepsMeasured = 4;
constexpr std::uint32_t kStepsUnmeasured = 15;
// New shapes in a row after which a shape has to come twice before it is worth a plan.
constexpr std::uint32_t kStrangersToPlan = 3;

}  // namespace

void StepLibrary::note_replay(const ReplayTimes& replay, std::uint32_t pages) {
  const OpTimes recomputed{{replay.took}, {replay.moved}};
  replay_extra_ += times_alone(recomputed, slowdown()).front() - replay.first_run;
  replay_pages_ += pages;
  if (replay_pages_ < kReplayPagesKept) return;
  replay_extra_ /= 2;
  replay_pages_ /= 2;
}

Duration StepLibrary::replay_extra_per_page() const {
  return replay_pages_ == 0 ? Duration(0) : std::max(Duration(0), replay_extra_ / replay_pages_);
}

profile::RecordedStep& StepLibrary::next_record() {
  if (records_.size() < kMaxSlots + 1) {
    records_.insert(records_.begin(), std::make_unique<Record>());
  } else {
    std::rotate(records_.begin(), records_.end() - 1, records_.end());
  }
  records_.front()->shape = kNoShape;
  return records_.front()->step;
}

ShapeId StepLibrary::learn(std::uint64_t identity, bool is_meaningful, bool is_cut_by_length) {
  ++step_count_;
  Record& record = *records_.front();
  const StepTape& tape = record.step.tape;
  if (!is_meaningful || !record.step.is_whole || tape.ops.empty()) {
    history_.push_front(kNoShape);
  } else {
    StepShape* shape = nullptr;
    for (const auto& known : shapes_) {
      if (known->sequence.identity() == identity && known->sequence.size() == tape.ops.size())
        shape = known.get();
    }
    strangers_ = shape == nullptr ? strangers_ + 1 : 0;
    if (shape == nullptr) {
      if (shapes_.size() >= kMaxShapes) forget_one_shape();
      shape = shapes_.emplace_back(std::make_unique<StepShape>()).get();
      shape->id = next_id_++;
      shape->sequence = OpSequence(tape.ops);
      shape->is_cut_by_length = is_cut_by_length;
    }
    if (!device_times_) shape->note_times(op_times_of(record.step));
    ++shape->seen;
    ++shape->unmeasured;
    shape->last_seen = step_count_;
    record.shape = shape->id;
    history_.push_front(shape->id);
    if (given_.is_there()) given_.note_step(most_frequent().sequence);
  }
  if (history_.size() > kHistory) history_.pop_back();
  if (device_times_) settle_device_times(record);
  return history_.front();
}

/// What was measured of the step comes later, and what has come by now is of steps before it.
void StepLibrary::settle_device_times(const Record& record) {
  if (device_times_->end_step(record.shape, record.step.moved_of_op))
    find_shape(record.shape)->unmeasured = 0;
  for (DeviceTimes::Step& step : device_times_->take_done()) {
    StepShape* const shape = find_shape(step.shape);
    if (shape == nullptr) continue;
    if (recording_ != nullptr) recording_->note_times(shape->sequence.identity(), step.times);
    shape->note_times(std::move(step.times));
  }
  device_times_->begin_step(recording_ != nullptr || lacks_times());
}

/// Whether the next step should be measured: one of the shapes that come these days, and may come
/// again, has too few times, or old ones.
bool StepLibrary::lacks_times() const {
  return shapes_.empty() || std::any_of(shapes_.begin(), shapes_.end(), [&](const auto& shape) {
           const bool is_recent = step_count_ - shape->last_seen < kHistory;
           const bool is_worth_it = shape->seen >= 2 || strangers_ <= kStrangersToPlan;
           return is_recent && is_worth_it &&
                  (shape->times.size() < kStepsMeasured || shape->unmeasured >= kStepsUnmeasured);
         });
}

bool StepLibrary::have_times(std::span<const ShapeId> shapes) const {
  return std::all_of(shapes.begin(), shapes.end(), [&](ShapeId id) {
    const StepShape* const shape = find_shape(id);
    return shape != nullptr && !shape->times.empty();
  });
}

PlanPlace StepLibrary::choose(LearnedPlan* current, std::uint32_t next_slot) {
  if (limits_.budget_pages == 0 || history_.empty()) return {};
  if (current != nullptr && next_slot == current->slots()) {
    ++current->cycles;
    next_slot = 0;
    if (current->slots() > 1) return refreshed(*current, current->slots() - std::size_t{1});
  }
  if (current != nullptr && current->slots() > 1) return start(*current, next_slot, false);
  if (history_.front() == kNoShape) return {};
  // A plan that was given is for one step, whatever comes between two of them.
  if (const std::uint32_t cycle = given_.is_there() ? 1 : find_cycle(); cycle > 1) {
    std::uint32_t slot = 0;
    LearnedPlan* plan = find_rotation(cycle, slot);
    const std::vector<ShapeId> latest(history_.rend() - cycle, history_.rend());
    if (plan == nullptr && have_times(latest)) {
      plan = &new_plan();
      plan->shapes = latest;
    }
    if (plan != nullptr && slot == 0) {
      if (const PlanPlace place = refreshed(*plan, cycle - std::size_t{1}); place.plan != nullptr)
        return place;
    } else if (plan != nullptr && plan->is_there()) {
      return start(*plan, slot, false);
    }
  }
  const ShapeId next = predict();
  if (next != history_.front()) {
    if (const PlanPlace place = find_neighbours(history_.front(), next); place.plan != nullptr)
      return place;
  }
  return follow_single(next);
}

PlanPlace StepLibrary::find_prefix(std::uint64_t hash, std::uint32_t length,
                                   const LearnedPlan* preferred) {
  PlanPlace best;
  for (const auto& plan : plans_) {
    for (std::uint32_t slot = 0; slot < plan->slots(); ++slot) {
      const StepShape* shape = find_shape(plan->shapes[slot]);
      if (!plan->is_there() || shape == nullptr || shape->sequence.size() < length) continue;
      if (shape->sequence.prefix(length) != hash) continue;
      const bool is_better = best.plan == nullptr || plan.get() == preferred ||
                             (best.plan != preferred && plan->last_used > best.plan->last_used);
      if (is_better) best = {plan.get(), plan->slot_begin[slot] + length - 1, false};
    }
  }
  if (best.plan != nullptr) best.plan->last_used = step_count_;
  return best;
}

PlanPlace StepLibrary::find_gram(std::uint64_t hash, LearnedPlan* preferred) {
  PlanPlace best;
  for (const auto& plan : plans_) {
    const auto op = plan->sequence.find_gram(hash);
    if (!op) continue;
    const bool is_better = best.plan == nullptr || plan.get() == preferred ||
                           (best.plan != preferred && plan->last_used > best.plan->last_used);
    if (is_better) best = {plan.get(), *op, false};
  }
  if (best.plan != nullptr) best.plan->last_used = step_count_;
  return best;
}

std::uint32_t StepLibrary::longest_step() const {
  std::uint32_t longest = 0;
  for (const auto& shape : shapes_) longest = std::max(longest, shape->sequence.size());
  return longest;
}

StepShape* StepLibrary::find_shape(ShapeId id) const {
  for (const auto& shape : shapes_) {
    if (shape->id == id) return shape.get();
  }
  return nullptr;
}

/// The step that followed the latest steps when they came before, with as much past as possible.
ShapeId StepLibrary::predict() const {
  ShapeId predicted = history_.front();
  std::size_t longest = 0;
  for (std::size_t past = 1; past < history_.size(); ++past) {
    std::size_t equal = 0;
    while (past + equal < history_.size() && history_[equal] == history_[past + equal]) ++equal;
    if (equal > longest) {
      longest = equal;
      predicted = history_[past - 1];
    }
  }
  return predicted;
}

/// The shortest cycle that the latest steps went through twice; 0 without one.
std::uint32_t StepLibrary::find_cycle() const {
  for (std::uint32_t cycle = 1; cycle <= kMaxSlots; ++cycle) {
    if (history_.size() < std::size_t{2} * cycle || records_.size() < cycle) break;
    bool is_cycle = true;
    for (std::uint32_t i = 0; i < cycle && is_cycle; ++i)
      is_cycle = history_[i] != kNoShape && history_[i] == history_[i + cycle];
    if (is_cycle) return cycle;
  }
  return 0;
}

/// The plan for the cycle that the latest steps went through, wherever it begins.
LearnedPlan* StepLibrary::find_rotation(std::uint32_t cycle, std::uint32_t& next_slot) {
  for (const auto& plan : plans_) {
    if (plan->slots() != cycle) continue;
    for (std::uint32_t last = 0; last < cycle; ++last) {
      bool is_equal = true;
      for (std::uint32_t i = 0; i < cycle && is_equal; ++i)
        is_equal = plan->shapes[(last + cycle - i) % cycle] == history_[i];
      if (!is_equal) continue;
      next_slot = (last + 1) % cycle;
      return plan.get();
    }
  }
  return nullptr;
}

PlanPlace StepLibrary::find_neighbours(ShapeId previous, ShapeId next) {
  LearnedPlan* found = nullptr;
  std::uint32_t found_slot = 0;
  for (const auto& plan : plans_) {
    if (!plan->is_there()) continue;
    for (std::uint32_t slot = 0; slot < plan->slots() && plan->slots() > 1; ++slot) {
      const std::uint32_t after = (slot + 1) % plan->slots();
      if (plan->shapes[slot] != previous || plan->shapes[after] != next) continue;
      if (found != nullptr && found->last_used >= plan->last_used) continue;
      found = plan.get();
      found_slot = after;
    }
  }
  return found == nullptr ? PlanPlace{} : start(*found, found_slot, false);
}

/// The plan of a step that follows itself.
PlanPlace StepLibrary::follow_single(ShapeId id) {
  StepShape* shape = find_shape(id);
  if (shape == nullptr) return {};
  std::size_t age = 0;
  while (age < records_.size() && records_[age]->shape != id) ++age;
  for (const auto& plan : plans_) {
    if (plan->slots() == 1 && plan->shapes.front() == id) return refreshed(*plan, age);
  }
  if (age == records_.size()) return {};
  const bool is_awaited = given_.is_there() && given_.is_for(shape->sequence);
  if (!is_awaited && shape->seen < 2 && strangers_ > kStrangersToPlan) return {};
  if (shape->times.empty()) return {};
  LearnedPlan& plan = new_plan();
  plan.shapes = {id};
  return refreshed(plan, age);
}

PlanPlace StepLibrary::start(LearnedPlan& plan, std::uint32_t slot, bool is_new) {
  plan.last_used = step_count_;
  return {&plan, plan.slot_begin[slot], is_new};
}

/// Of equally frequent ones the latest.
const StepShape& StepLibrary::most_frequent() const {
  return **std::max_element(shapes_.begin(), shapes_.end(), [](const auto& a, const auto& b) {
    return a->seen != b->seen ? a->seen < b->seen : a->last_seen < b->last_seen;
  });
}

LearnedPlan& StepLibrary::new_plan() {
  if (plans_.size() >= kMaxPlans) {
    const auto oldest =
        std::min_element(plans_.begin(), plans_.end(),
                         [](const auto& a, const auto& b) { return a->last_used < b->last_used; });
    plans_.erase(oldest);
  }
  return *plans_.emplace_back(std::make_unique<LearnedPlan>());
}

void StepLibrary::forget(const LearnedPlan& plan) {
  std::erase_if(plans_, [&](const auto& known) { return known.get() == &plan; });
}

void StepLibrary::forget_one_shape() {
  const auto least =
      std::min_element(shapes_.begin(), shapes_.end(), [](const auto& a, const auto& b) {
        return a->seen != b->seen ? a->seen < b->seen : a->last_seen < b->last_seen;
      });
  const ShapeId id = (*least)->id;
  std::erase_if(plans_, [&](const auto& plan) {
    return std::find(plan->shapes.begin(), plan->shapes.end(), id) != plan->shapes.end();
  });
  for (const auto& record : records_) {
    if (record->shape == id) record->shape = kNoShape;
  }
  shapes_.erase(least);
}

}  // namespace spillway::runtime
