#include "recompute_closure.h"

#include <set>

namespace spillway::planner {

using profile::OpIndex;
using profile::StepTape;
using profile::TapeUse;
using profile::TapeValue;
using profile::ValueIndex;

RecomputeClosure::RecomputeClosure(const StepTape& tape, const std::vector<char>& is_kept,
                                   OpIndex forward_end)
    : tape_(tape),
      is_kept_(is_kept),
      forward_end_(forward_end),
      writers_(tape.values.size()),
      kept_of_(tape.ops.size()) {
  for (OpIndex op = 0; op <= forward_end; ++op)
    for (const TapeUse& use : uses_of(tape, op))
      if (use.writes && tape.values[use.value].birth != op) writers_[use.value].push_back(op);
  for (ValueIndex value = 0; value < tape.values.size(); ++value)
    if (is_kept[value] != 0 && tape.values[value].birth != profile::kCarriedIn)
      kept_of_[tape.values[value].birth].push_back(value);
}

std::optional<double> RecomputeClosure::seconds_of(OpIndex op) const {
  constexpr std::size_t kMostOperators = 64;
  std::set<OpIndex> runs;
  std::vector<OpIndex> waiting{op};
  for (const ValueIndex value : kept_of_[op])
    waiting.insert(waiting.end(), writers_[value].begin(), writers_[value].end());
  double total = 0.0;
  while (!waiting.empty()) {
    const OpIndex next = waiting.back();
    waiting.pop_back();
    if (!runs.insert(next).second) continue;
    if (runs.size() > kMostOperators || !tape_.ops[next].is_replayable) return std::nullopt;
    total += seconds(tape_.ops[next].time);
    for (const TapeUse& use : uses_of(tape_, next)) {
      const OpIndex birth = tape_.values[use.value].birth;
      if (birth == next || is_there(use, next, op)) continue;
      if (birth == profile::kCarriedIn) return std::nullopt;
      // Made anew, up to how it was read.
      waiting.push_back(birth);
      for (const OpIndex writer : writers_[use.value])
        if (writer < next) waiting.push_back(writer);
    }
  }
  return total;
}

bool RecomputeClosure::is_there(const TapeUse& use, OpIndex reader, OpIndex op) const {
  if (use.writes) return false;  // What is kept must stay as it is.
  const std::vector<OpIndex>& writers = writers_[use.value];
  if (!writers.empty() && writers.back() > reader) return false;
  const TapeValue& value = tape_.values[use.value];
  if (value.birth != profile::kCarriedIn) return is_kept_[use.value] != 0 && value.birth != op;
  // Alive after the end of forward: parameters, and data that backward or the next step still sees.
  return is_kept_[use.value] != 0 || value.death == profile::kSurvives ||
         value.death > forward_end_;
}

}  // namespace spillway::planner
