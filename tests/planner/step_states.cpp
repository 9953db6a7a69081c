#include "step_states.h"

#include <algorithm>

namespace spillway::planner {

using profile::kCarriedIn;
using profile::kNoValue;
using profile::kSurvives;
using profile::StepTape;
using profile::TapeValue;
using profile::ValueIndex;

bool fits_state(const StepTape& tape, std::size_t most_values) {
  return tape.values.size() <= most_values &&
         std::all_of(tape.values.begin(), tape.values.end(),
                     [](const TapeValue& value) { return value.pages <= kMostStatePages; });
}

OpMarks marks_of(const StepTape& tape, profile::OpIndex op) {
  OpMarks marks{std::vector<bool>(tape.values.size(), false),
                std::vector<bool>(tape.values.size(), false)};
  for (std::uint32_t i = 0; i < tape.ops[op].use_count; ++i) {
    const auto& use = tape.uses[tape.ops[op].first_use + i];
    marks.is_used[use.value] = true;
    if (use.writes) marks.is_written[use.value] = true;
  }
  return marks;
}

State first_state(const StepTape& tape) {
  State state = 0;
  for (ValueIndex i = 0; i < tape.values.size(); ++i) {
    if (tape.values[i].birth == kCarriedIn) state = with(state, i, tape.values[i].pages, 0);
  }
  return state;
}

State state_after(const StepTape& tape, profile::OpIndex op, const OpMarks& marks, State state) {
  for (ValueIndex i = 0; i < tape.values.size(); ++i) {
    const TapeValue& value = tape.values[i];
    if (marks.is_written[i] || value.birth == op) state = with(state, i, value.pages, 0);
    if (value.death == op) state = with(state, i, 0, 0);
  }
  return state;
}

State renumbered(const StepTape& tape, State state) {
  State next = 0;
  for (ValueIndex i = 0; i < tape.values.size(); ++i) {
    const TapeValue& value = tape.values[i];
    if (value.death == kSurvives && value.becomes != kNoValue)
      next = with(next, value.becomes, dirty(state, i), clean(state, i));
  }
  return next;
}

std::uint32_t BoundaryStates::number_of(State state) {
  const auto [place, is_new] = numbers_.emplace(state, static_cast<std::uint32_t>(states_.size()));
  if (is_new) states_.push_back(state);
  return place->second;
}

}  // namespace spillway::planner
