#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "spillway/profile/step_tape.h"

namespace spillway::planner {

/// The resident pages of a tiny step: per value two bits for those without a copy and two for those
/// with one.
using State = std::uint64_t;
inline constexpr std::uint32_t kMostStatePages = 3;

inline std::uint32_t dirty(State state, profile::ValueIndex value) {
  return state >> (4 * value) & 3;
}
inline std::uint32_t clean(State state, profile::ValueIndex value) {
  return state >> (4 * value + 2) & 3;
}
inline State with(State state, profile::ValueIndex value, std::uint32_t dirty,
                  std::uint32_t clean) {
  return (state & ~(State{15} << (4 * value))) | State{dirty | clean << 2} << (4 * value);
}

/// Whether there are at most so many values, of at most `kMostStatePages` pages.
bool fits_state(const profile::StepTape& tape, std::size_t most_values);

/// What an operator does with each value.
struct OpMarks {
  std::vector<bool> is_used;
  std::vector<bool> is_written;
};
OpMarks marks_of(const profile::StepTape& tape, profile::OpIndex op);

/// What is resident at the begin: all that is carried in.
State first_state(const profile::StepTape& tape);

/// Behind an operator with these marks.
State state_after(const profile::StepTape& tape, profile::OpIndex op, const OpMarks& marks,
                  State state);

/// The step begins again: survivors go by the numbers that they have in it.
State renumbered(const profile::StepTape& tape, State state);

/// Numbers the states that a step can begin with, from 0 on, as they are met.
class BoundaryStates {
 public:
  std::uint32_t number_of(State state);
  State operator[](std::uint32_t number) const { return states_[number]; }
  std::size_t size() const { return states_.size(); }

 private:
  std::unordered_map<State, std::uint32_t> numbers_;
  std::vector<State> states_;
};

}  // namespace spillway::planner
