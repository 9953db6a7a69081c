#include "spillway/profile/step_tape.h"

#include <gmock/gmock.h>

#include "spillway/base/error.h"

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

void expect_refusal(const StepTape& tape, const char* text) {
  try {
    check(tape);
    ADD_FAILURE() << "accepted: " << text;
  } catch (const PlanError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(text));
  }
}

TEST(CheckTape, AcceptsAConsistentTape) { EXPECT_NO_THROW(check(valid_tape())); }

TEST(CheckTape, NamesTheContradiction) {
  StepTape tape = valid_tape();
  tape.uses[1].value = 9;
  expect_refusal(tape, "operator 1 uses value 9 of 2");

  tape = valid_tape();
  tape.uses[0].value = 1;
  expect_refusal(tape, "operator 0 uses value 1");

  tape = valid_tape();
  tape.values[1].death = 0;
  expect_refusal(tape, "operator 1 uses value 1, which lives from 0 to 0");

  tape = valid_tape();
  tape.values[0].becomes = 1;
  expect_refusal(tape, "does not cross the step boundary");

  tape = valid_tape();
  tape.values[0].pages = 0;
  expect_refusal(tape, "value 0 of the tape has no pages");

  tape = valid_tape();
  tape.values.push_back({.pages = 2, .birth = 1, .becomes = 0});
  expect_refusal(tape, "two values of the tape become value 0");

  tape = valid_tape();
  tape.ops[1].use_count = 2;
  expect_refusal(tape, "uses of operator 1 lie outside of the tape");
}

}  // namespace
}  // namespace spillway::profile
