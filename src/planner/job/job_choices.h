#pragma once

#include <cstdint>
#include <vector>

namespace spillway::planner {

/// From the largest one down.
std::vector<std::uint32_t> divisors_of(std::uint32_t number);

}  // namespace spillway::planner
