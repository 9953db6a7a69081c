#pragma once

#include <c10/core/Device.h>

#include <string>

#include "running_call.h"

namespace spillway::split {

/// Before a call on that GPU, on the program's thread, which has backward run there, too, from
/// now on. Why the program cannot be split; empty: it can. A rank has one GPU, on whose default
/// stream everything runs, so that what the program and the executor give it runs in the order in
/// which they do.
std::string objection_to(const CalledOperator& called, c10::Device device);

}  // namespace spillway::split
