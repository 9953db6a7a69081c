#pragma once

#include <array>

#include "spillway/base/named_values.h"
#include "spillway/planner/cluster/cluster.h"

namespace spillway::planner {

// How descriptions of machines call things.

inline constexpr const char* kClusterFormat = "spillway cluster 1";

inline constexpr std::array<Named<StragglerLaw>, 4> kLaws{
    {{"none", StragglerLaw::kNone},
     {"uniform", StragglerLaw::kUniform},
     {"half-normal", StragglerLaw::kHalfNormal},
     {"exponential", StragglerLaw::kExponential}}};
inline constexpr std::array<Named<bool>, 2> kWirings{{{"nodes", false}, {"rails", true}}};
inline constexpr std::array<Named<bool>, 2> kUnits{{{"device", false}, {"node", true}}};

}  // namespace spillway::planner
