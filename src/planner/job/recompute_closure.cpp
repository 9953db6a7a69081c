#include "recompute_closure.h"

#include <set>

namespace spillway::planner {

using profile::OpIndex;
using profile::StepTape;
using profile::TapeUse;
using profile::TapeValue;

RecomputeClosure::RecomputeClosure(const StepTape& tape, const std::vector<char>& is_kept,
                                   OpIndex turn)
    : tape_(tape), is_kept_(is_kept), turn_(turn), is_written_(tape.values.size(), 0) {
  for (OpIndex op = 0; op <= turn; ++op)
    for (const TapeUse& use : uses_of(tape, op))
      if (use.writes) is_written_[use.value] = 1;
}

std::optional<double> RecomputeClosure::seconds_of(OpIndex op) const {
  constexpr std::size_t kMostOperators = 64;
  std::set<OpIndex> runs;
  std::vector<OpIndex> waiting{op};
  double total = 0.0;
  while (!waiting.empty()) {
    const OpIndex next = waiting.back();
    waiting.pop_back();
    if (!runs.insert(next).second) continue;
    if (runs.size() > kMostOperators || !tape_.ops[next].is_replayable) return std::nullopt;
    total += seconds(tape_.ops[next].time);
    for (const TapeUse& use : uses_of(tape_, next)) {
      const TapeValue& value = tape_.values[use.value];
      if (is_written_[use.value] != 0) return std::nullopt;
      if (is_kept_[use.value] != 0) continue;
      if (value.birth == profile::kCarriedIn) {
        // Alive behind the turn: parameters, and data that backward or the next step still sees.
        if (value.death != profile::kSurvives && value.death <= turn_) return std::nullopt;
        continue;
      }
      waiting.push_back(value.birth);
    }
  }
  return total;
}

}  // namespace spillway::planner
