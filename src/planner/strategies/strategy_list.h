#pragma once

#include "spillway/planner/strategies.h"

namespace spillway::planner {

// One file each, of the same name.
extern const Strategy kDemand;
extern const Strategy kBelady;
extern const Strategy kSwapAll;
extern const Strategy kOffloadOnly;
extern const Strategy kCheckpointSqrt;
extern const Strategy kRotor;
extern const Strategy kDtr;
extern const Strategy kCapuchin;
extern const Strategy kKarma;
extern const Strategy kExhaustive;

}  // namespace spillway::planner
