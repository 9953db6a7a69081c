#include "spillway/profile/step_tape.h"

#include <algorithm>

#include "spillway/base/error.h"

namespace spillway::profile {
namespace {

void check_value(const StepTape& tape, ValueIndex index) {
  const TapeValue& value = tape.values[index];
  const auto ops = static_cast<OpIndex>(tape.ops.size());
  if (value.pages == 0) throw PlanError("value {} of the tape has no pages", index);
  if (value.birth != kCarriedIn && value.birth >= ops)
    throw PlanError("value {} is born at operator {} of {}", index, value.birth, ops);
  if (value.death != kSurvives && value.death >= ops)
    throw PlanError("value {} dies at operator {} of {}", index, value.death, ops);
  if (value.birth != kCarriedIn && value.death != kSurvives && value.death < value.birth)
    throw PlanError("value {} dies at operator {}, before its birth at {}", index, value.death,
                    value.birth);
  if (value.becomes == kNoValue) return;
  if (value.becomes >= tape.values.size())
    throw PlanError("value {} becomes {} of {}", index, value.becomes, tape.values.size());
  const TapeValue& next = tape.values[value.becomes];
  if (value.death != kSurvives || next.birth != kCarriedIn)
    throw PlanError("value {} becomes {}, but does not cross the step boundary", index,
                    value.becomes);
  if (next.pages != value.pages)
    throw PlanError("value {} of {} pages becomes {} of {} pages", index, value.pages,
                    value.becomes, next.pages);
}

void check_op(const StepTape& tape, OpIndex index) {
  const TapeOp& op = tape.ops[index];
  const auto touches = touches_of(tape, index);
  if (op.first_use + touches.size() > tape.uses.size())
    throw PlanError("uses of operator {} lie outside of the tape", index);
  for (std::size_t i = 0; i < touches.size(); ++i) {
    const ValueIndex used = touches[i].value;
    if (used >= tape.values.size())
      throw PlanError("operator {} uses value {} of {}", index, used, tape.values.size());
    const TapeValue& value = tape.values[used];
    if (value.is_shared != (i >= op.use_count))
      throw PlanError("operator {} uses value {} as another kind of page than it is", index, used);
    const bool is_born = value.birth == kCarriedIn || value.birth < index;
    if (!is_born || value.death < index)
      throw PlanError("operator {} uses value {}, which lives from {} to {}", index, used,
                      value.birth, value.death);
  }
}

}  // namespace

void check(const StepTape& tape) {
  std::vector<bool> is_continued(tape.values.size(), false);
  for (ValueIndex i = 0; i < tape.values.size(); ++i) {
    check_value(tape, i);
    const ValueIndex next = tape.values[i].becomes;
    if (next == kNoValue) continue;
    if (is_continued[next]) throw PlanError("two values of the tape become value {}", next);
    is_continued[next] = true;
  }
  for (OpIndex i = 0; i < tape.ops.size(); ++i) check_op(tape, i);
}

}  // namespace spillway::profile
