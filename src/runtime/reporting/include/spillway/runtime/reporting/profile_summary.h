#pragma once

#include <string>

#include "spillway/profile/step_profile.h"

namespace spillway::runtime {

/// One line for people: "182 operators, 154 values, 7.84 GiB at once; 0.435 s, median of 5 steps".
std::string describe(const profile::StepProfile& profile);

}  // namespace spillway::runtime
