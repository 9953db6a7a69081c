#pragma once

#include "phantom_calls.h"

// The tables are those of the recomputation's tests, and in their namespace.
namespace spillway::recompute {

using at::Tensor;
using phantoms::backward;
using phantoms::leaf;
using phantoms::rnd;
using Operators = phantoms::Phantoms;

}  // namespace spillway::recompute
