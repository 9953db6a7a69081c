#include "spillway/profile/value_classes.h"

#include <algorithm>

#include "spillway/base/assert.h"
#include "spillway/base/error.h"

namespace spillway::profile {
namespace {

struct Touches {
  OpIndex first = kSurvives;  ///< Later than any operator: never.
  OpIndex first_write = kSurvives;
};

std::vector<Touches> touches_of(const StepTape& tape) {
  std::vector<Touches> touches(tape.values.size());
  for (OpIndex op = 0; op < tape.ops.size(); ++op) {
    for (std::uint32_t i = 0; i < tape.ops[op].use_count; ++i) {
      const TapeUse& use = tape.uses[tape.ops[op].first_use + i];
      Touches& value = touches[use.value];
      value.first = std::min(value.first, op);
      if (use.writes) value.first_write = std::min(value.first_write, op);
    }
  }
  return touches;
}

bool is_optimizer_state(const TapeValue& value, const Touches& touches, OpIndex first_gradient) {
  return value.birth == kCarriedIn && value.death == kSurvives &&
         touches.first_write != kSurvives && touches.first > first_gradient;
}

/// `update`: where the optimizer's begins.
StorageClass class_of(const TapeValue& value, const Touches& touches, OpIndex first_gradient,
                      OpIndex update) {
  const bool is_written = touches.first_write != kSurvives;
  if (value.birth != kCarriedIn && value.death == kSurvives) return StorageClass::kUnknown;
  if (value.birth != kCarriedIn)
    return value.birth < update ? StorageClass::kActivation : StorageClass::kWorkspace;
  if (touches.first == kSurvives) return StorageClass::kUnknown;
  if (value.death != kSurvives) return is_written ? StorageClass::kUnknown : StorageClass::kInput;
  if (is_optimizer_state(value, touches, first_gradient)) return StorageClass::kOptimizerState;
  return StorageClass::kBuffer;
}

std::string_view class_text(StorageClass holds) {
  switch (holds) {
    case StorageClass::kParameter: return "parameter";
    case StorageClass::kGradient: return "gradient";
    case StorageClass::kOptimizerState: return "optimizer state";
    case StorageClass::kBuffer: return "buffer";
    case StorageClass::kActivation: return "activation";
    case StorageClass::kInput: return "input";
    case StorageClass::kWorkspace: return "workspace";
    case StorageClass::kSharedPage: return "shared page";
    case StorageClass::kUnknown: break;
  }
  return "tensor";
}

/// The first use of an optimizer state, or write to a parameter behind the first gradient; later
/// than any operator: there is none.
OpIndex begin_of_update(const StepTape& tape, std::span<const StorageClass> noted,
                        std::span<const Touches> touches, OpIndex first_gradient) {
  OpIndex begin = kSurvives;
  for (ValueIndex i = 0; i < noted.size(); ++i) {
    if (noted[i] == StorageClass::kUnknown &&
        is_optimizer_state(tape.values[i], touches[i], first_gradient))
      begin = std::min(begin, touches[i].first);
    if (noted[i] == StorageClass::kParameter && touches[i].first_write != kSurvives &&
        touches[i].first_write > first_gradient)
      begin = std::min(begin, touches[i].first_write);
  }
  return begin;
}

}  // namespace

std::vector<StorageClass> classify_values(const StepTape& tape,
                                          std::span<const StorageClass> noted) {
  SPILLWAY_ASSERT(noted.size() == tape.values.size());
  const std::vector<Touches> touches = touches_of(tape);
  OpIndex first_gradient = kSurvives;
  for (ValueIndex i = 0; i < noted.size(); ++i) {
    if (noted[i] != StorageClass::kGradient) continue;
    const OpIndex birth = tape.values[i].birth;
    first_gradient = std::min(first_gradient, birth != kCarriedIn ? birth : touches[i].first_write);
  }
  const OpIndex update = begin_of_update(tape, noted, touches, first_gradient);
  std::vector<StorageClass> classes(noted.begin(), noted.end());
  for (ValueIndex i = 0; i < classes.size(); ++i) {
    if (tape.values[i].is_shared) classes[i] = StorageClass::kSharedPage;
    if (classes[i] == StorageClass::kUnknown)
      classes[i] = class_of(tape.values[i], touches[i], first_gradient, update);
  }
  // What is born in one step and dies in the next is one thing under two numbers.
  for (ValueIndex i = 0; i < classes.size(); ++i) {
    const ValueIndex next = tape.values[i].becomes;
    if (next == kNoValue || next == i) continue;
    const bool is_known_here = noted[i] != StorageClass::kUnknown;
    if (is_known_here && noted[next] == StorageClass::kUnknown) classes[next] = noted[i];
    if (!is_known_here && classes[i] == StorageClass::kUnknown) classes[i] = classes[next];
  }
  return classes;
}

std::string value_name(StorageClass holds, ValueIndex value) {
  return message("{} {}", class_text(holds), value);
}

std::string value_text(StorageClass holds, ValueIndex value, Bytes bytes,
                       std::string_view made_by) {
  return message("{} of {}{}{}", value_name(holds, value), bytes, made_by.empty() ? "" : " from ",
                 made_by);
}

}  // namespace spillway::profile
