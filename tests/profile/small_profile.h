#pragma once

#include "spillway/profile/autograd_links.h"
#include "spillway/profile/step_profile.h"

namespace spillway::profile {

/// A step of three operators on five values, with everything that a profile can hold.
inline StepProfile small_profile() {
  StepProfile profile;
  profile.origin = {.source = "recorded",
                    .program = "/home/a \"b\"/trainer",
                    .libtorch = "2.11.0",
                    .spillway = "0.3.0",
                    .threads = 2,
                    .steps = 5,
                    .command = "'/home/a \"b\"/trainer' --steps 5"};
  profile.page_size = Bytes(4096);
  profile.small_bytes = Bytes(1234567);
  profile.small_parameter_bytes = Bytes(34567);
  profile.kinds = {{"aten::mm", "float[2, 3], float[3, 4]"}, {"aten::relu_", ""}};
  profile.kind_of_op = {0, 1, 0};
  profile.phase_of_op = {OpPhase::kForward, OpPhase::kBackward, OpPhase::kOther};
  profile.forward_of_op = {kNoForward, 0, kNoForward};
  profile.spread_of_op = {Duration(5), Duration(0), Duration(1'000'000'000'000)};
  profile.tape.ops = {
      {0xffffffffffffffffULL, Duration(1'000'000), 0, 2, 3, true},
      {0, Duration(0), 2, 1, 0, false},
      {0x0123456789abcdefULL, Duration(77), 3, 3, 1, false},
  };
  profile.tape.forward_end = 0;
  profile.tape.uses = {{0, false}, {1, false}, {2, true}, {2, false}, {0, true}, {4, false}};
  profile.tape.values = {{2, kCarriedIn, kSurvives, 0},
                         {1, kCarriedIn, 0, kNoValue},
                         {3, 0, 2, kNoValue},
                         {1, 2, kSurvives, 1},
                         {1, kCarriedIn, kSurvives, kNoValue}};
  profile.class_of_value = {StorageClass::kParameter, StorageClass::kGradient,
                            StorageClass::kActivation, StorageClass::kGradient,
                            StorageClass::kUnknown};
  profile.bytes_of_value = {Bytes(8192), Bytes(1), Bytes(12288), Bytes(4000), Bytes(4096)};
  profile.program_needs = ProgramNeeds{Bytes(7654321), {"aten::_to_copy", "float[1, 181]"}, true};
  profile.hidden_dependences = std::vector<HiddenDependence>{{0, 1}, {0, 2}};
  profile.rates = TransferRates{.write = TransferRate(1.1e9),
                                .read = TransferRate(1e10 / 3),
                                .duplex_share = 1.0 / 3,
                                .write_fixed_seconds = 1e-300,
                                .read_fixed_seconds = 0.0,
                                .interference_seconds_per_byte = 5e-11};
  return profile;
}

}  // namespace spillway::profile
