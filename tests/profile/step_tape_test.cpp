#include "spillway/profile/step_tape.h"

#include <gtest/gtest.h>

#include "spillway/base/error.h"
#include "support/error_text.h"
#include "support/golden_part.h"

namespace spillway::profile {
namespace {

StepTape valid_tape() {
  StepTape tape;
  tape.values = {{.pages = 2, .becomes = 0}, {.pages = 3, .birth = 0, .death = 1}};
  tape.uses = {{0, false}, {1, true}};
  tape.ops = {{.first_use = 0, .use_count = 1, .inside_peak_pages = 3},
              {.first_use = 1, .use_count = 1}};
  return tape;
}

std::string refusal(const StepTape& tape) {
  return error_text<PlanError>([&] { check(tape); });
}

TEST(CheckTape, AcceptsAConsistentTape) { EXPECT_NO_THROW(check(valid_tape())); }

TEST(CheckTape, NamesTheContradiction) {
  GoldenPart golden;
  StepTape tape = valid_tape();
  tape.uses[1].value = 9;
  golden.add(refusal(tape));

  tape = valid_tape();
  tape.uses[0].value = 1;
  golden.add(refusal(tape));

  tape = valid_tape();
  tape.values[1].death = 0;
  golden.add(refusal(tape));

  tape = valid_tape();
  tape.values[0].becomes = 1;
  golden.add(refusal(tape));

  tape = valid_tape();
  tape.values[0].pages = 0;
  golden.add(refusal(tape));

  tape = valid_tape();
  tape.values.push_back({.pages = 2, .birth = 1, .becomes = 0});
  golden.add(refusal(tape));

  tape = valid_tape();
  tape.ops[1].use_count = 2;
  golden.add(refusal(tape));
}

}  // namespace
}  // namespace spillway::profile
