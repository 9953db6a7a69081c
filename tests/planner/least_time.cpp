#include "least_time.h"

#include <chrono>
#include <unordered_set>
#include <vector>

#include "cycle_mean.h"
#include "step_states.h"

namespace spillway::planner {
namespace {

using profile::kCarriedIn;
using profile::kSurvives;
using profile::OpIndex;
using profile::StepTape;
using profile::TapeValue;
using profile::ValueIndex;

constexpr std::size_t kMostValues = 12;
constexpr std::size_t kMostBoundaries = 60;
constexpr std::size_t kMostVisited = 20000;

/// Above the pages stands the operator that comes next or runs, and its ticks left plus one, 0
/// while it does not run.
constexpr std::uint32_t kOpShift = 4 * kMostValues;
constexpr std::uint32_t kLeftShift = kOpShift + 8;
constexpr State kPagesMask = (State{1} << kOpShift) - 1;

std::uint32_t op_of(State state) { return state >> kOpShift & 255; }
std::uint32_t left_of(State state) { return static_cast<std::uint32_t>(state >> kLeftShift); }

State at(State state, std::uint32_t op, std::uint32_t left) {
  return (state & kPagesMask) | State{op} << kOpShift | State{left} << kLeftShift;
}

class TickExplorer {
 public:
  TickExplorer(const StepTape& tape, std::uint32_t budget, bool is_duplex)
      : tape_(tape),
        budget_(budget),
        is_duplex_(is_duplex),
        op_count_(static_cast<OpIndex>(tape.ops.size())) {
    for (OpIndex op = 0; op < op_count_; ++op) {
      const Duration time = tape.ops[op].time;
      const auto ticks = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
      ticks_.push_back(static_cast<std::uint32_t>(ticks));
      marks_.push_back(marks_of(tape, op));
    }
  }

  std::optional<double> least_mean() {
    boundaries_.number_of(first_state(tape_));
    for (std::uint32_t from = 0; from < boundaries_.size(); ++from) {
      if (!explore(from) || boundaries_.size() > kMostBoundaries) return std::nullopt;
    }
    return least_cycle_mean(edges_, boundaries_.size());
  }

 private:
  /// Tick by tick through one step, every state at its first tick. False: too many, or stuck.
  bool explore(std::uint32_t from) {
    visited_.clear();
    now_ = {boundaries_[from]};
    std::size_t reached = 0;
    for (std::uint32_t tick = 0; !now_.empty(); ++tick) {
      later_.clear();
      while (!now_.empty()) {
        const State state = now_.back();
        now_.pop_back();
        if (!visited_.insert(state).second) continue;
        if (visited_.size() > kMostVisited) return false;
        if (op_of(state) == op_count_) {
          edges_.push_back({from, boundaries_.number_of(renumbered(tape_, state)), tick});
          ++reached;
          continue;
        }
        go_on(state);
      }
      now_.swap(later_);
    }
    return reached > 0;
  }

  void go_on(State state) {
    const OpIndex op = op_of(state);
    const std::uint32_t left = left_of(state);
    for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
      const bool is_held = left > 0 && is_used(op, i);
      if (clean(state, i) > 0 && !is_held)
        now_.push_back(with(state, i, dirty(state, i), clean(state, i) - 1));
    }
    const bool begins = left == 0 && fits_begin(state, op);
    if (begins) now_.push_back(at(state, op, ticks_[op] + 1));
    if (left == 1)
      now_.push_back(ended(state));
    else
      pass_tick(state);
  }

  /// After the running operator.
  State ended(State state) const {
    const OpIndex op = op_of(state);
    return at(state_after(tape_, op, marks_[op], state), op + 1, 0);
  }

  void pass_tick(State state) {
    std::vector<State> after_write{state};
    const OpIndex op = op_of(state);
    const bool is_running = left_of(state) > 0;
    for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
      const bool is_in_vain = is_running && is_written(op, i);
      if (dirty(state, i) > 0 && !is_in_vain)
        after_write.push_back(with(state, i, dirty(state, i) - 1, clean(state, i) + 1));
    }
    const bool has_room =
        held(state) + (is_running ? tape_.ops[op].inside_peak_pages : 0) + 1 <= budget_;
    for (const State written : after_write) {
      add_later(written);
      if (!has_room || (written != state && !is_duplex_)) continue;
      for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
        const bool is_whole = dirty(written, i) + clean(written, i) == tape_.values[i].pages;
        if (is_alive(op, i) && !is_whole)
          add_later(with(written, i, dirty(written, i), clean(written, i) + 1));
      }
    }
  }

  void add_later(State state) {
    const std::uint32_t left = left_of(state);
    later_.push_back(left == 0 ? state : at(state, op_of(state), left - 1));
  }

  std::uint32_t held(State state) const {
    std::uint32_t pages = 0;
    for (ValueIndex i = 0; i < tape_.values.size(); ++i) pages += dirty(state, i) + clean(state, i);
    return pages;
  }

  bool fits_begin(State state, OpIndex op) const {
    for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
      if (is_used(op, i) && dirty(state, i) + clean(state, i) < tape_.values[i].pages) return false;
    }
    return held(state) + tape_.ops[op].inside_peak_pages <= budget_;
  }

  bool is_alive(OpIndex op, ValueIndex value) const {
    const TapeValue& entry = tape_.values[value];
    return (entry.birth == kCarriedIn || entry.birth < op) &&
           (entry.death == kSurvives || entry.death >= op);
  }

  bool is_used(OpIndex op, ValueIndex value) const { return marks_[op].is_used[value]; }
  bool is_written(OpIndex op, ValueIndex value) const { return marks_[op].is_written[value]; }

  const StepTape& tape_;
  const std::uint32_t budget_;
  const bool is_duplex_;
  const OpIndex op_count_;
  std::vector<std::uint32_t> ticks_;
  std::vector<OpMarks> marks_;
  BoundaryStates boundaries_;
  std::vector<StepEdge> edges_;
  std::unordered_set<State> visited_;
  std::vector<State> now_;
  std::vector<State> later_;
};

}  // namespace

std::optional<double> least_ticks(const StepTape& tape, std::uint32_t budget_pages,
                                  bool is_duplex) {
  if (!fits_state(tape, kMostValues)) return std::nullopt;
  return TickExplorer(tape, budget_pages, is_duplex).least_mean();
}

}  // namespace spillway::planner
