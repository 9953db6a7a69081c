#include "spillway/planner/forward_stash.h"

#include <algorithm>

namespace spillway::planner {

using profile::kCarriedIn;
using profile::kSurvives;
using profile::TapeUse;
using profile::TapeValue;

namespace {

bool writes_what_was_carried_in(const StepTape& tape, OpIndex op) {
  const auto uses = uses_of(tape, op);
  return std::any_of(uses.begin(), uses.end(), [&](const TapeUse& use) {
    return use.writes && tape.values[use.value].birth == kCarriedIn;
  });
}

OpIndex guessed_forward_end(const StepTape& tape, const std::vector<OpIndex>& last_use) {
  std::vector<std::int64_t> change(tape.ops.size() + 1, 0);
  for (ValueIndex i = 0; i < tape.values.size(); ++i) {
    const TapeValue& value = tape.values[i];
    if (value.birth == kCarriedIn || value.death == kSurvives || last_use[i] == kCarriedIn)
      continue;
    // Gradients wait for the optimizer as activations wait for backward, and mostly for longer: the
    // guess would slip towards the end of the step.
    if (writes_what_was_carried_in(tape, last_use[i])) continue;
    change[value.birth] += value.pages;
    change[last_use[i]] -= value.pages;
  }
  OpIndex forward_end = 0;
  std::int64_t waiting = 0;
  std::int64_t most = -1;
  for (OpIndex op = 0; op < tape.ops.size(); ++op) {
    waiting += change[op];
    // Of equal ones the first: what follows leaves nothing more for backward.
    if (waiting <= most) continue;
    most = waiting;
    forward_end = op;
  }
  return forward_end;
}

std::vector<OpIndex> last_uses(const StepTape& tape) {
  std::vector<OpIndex> last_use(tape.values.size(), kCarriedIn);
  for (OpIndex op = 0; op < tape.ops.size(); ++op)
    for (const TapeUse& use : uses_of(tape, op)) last_use[use.value] = op;
  return last_use;
}

ForwardStash stash_at(const StepTape& tape, OpIndex forward_end,
                      const std::vector<OpIndex>& last_use) {
  ForwardStash stash{forward_end, {}};
  constexpr auto kNone = static_cast<std::size_t>(-1);
  std::vector<std::size_t> place(tape.values.size(), kNone);
  for (ValueIndex i = 0; i < tape.values.size(); ++i) {
    const TapeValue& value = tape.values[i];
    // Carried-in values are parameters and states, which wait for nobody's backward; survivors are
    // what the step leaves to the next one.
    const bool is_used_behind = last_use[i] != kCarriedIn && last_use[i] > stash.forward_end;
    if (value.birth == kCarriedIn || value.birth > stash.forward_end || value.death == kSurvives ||
        !is_used_behind)
      continue;
    place[i] = stash.values.size();
    // `next` begins with the largest of all numbers, so that the least of the uses is found below.
    stash.values.push_back({i, value.pages, value.birth, value.birth, kCarriedIn, last_use[i]});
  }
  for (OpIndex op = 0; op < tape.ops.size(); ++op) {
    for (const TapeUse& use : uses_of(tape, op)) {
      if (place[use.value] == kNone) continue;
      StashedValue& value = stash.values[place[use.value]];
      if (op <= stash.forward_end)
        value.after = op;
      else
        value.next = std::min(value.next, op);
    }
  }
  // Strategies cut the stash into blocks of neighbours.
  std::stable_sort(stash.values.begin(), stash.values.end(),
                   [](const StashedValue& a, const StashedValue& b) { return a.birth < b.birth; });
  return stash;
}

}  // namespace

ForwardStash find_stash(const StepTape& tape) {
  const std::vector<OpIndex> last_use = last_uses(tape);
  const OpIndex end = tape.forward_end ? *tape.forward_end : guessed_forward_end(tape, last_use);
  return stash_at(tape, end, last_use);
}

ForwardStash find_stash(const StepTape& tape, OpIndex forward_end) {
  return stash_at(tape, forward_end, last_uses(tape));
}

}  // namespace spillway::planner
