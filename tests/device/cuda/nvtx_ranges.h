#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// A range that a program has pushed, with its payload in bytes.
struct SpillwayNvtxRange {
  std::string name;
  std::uint64_t bytes = 0;
  bool operator==(const SpillwayNvtxRange&) const = default;
};

/// Of nvtx_injection.cpp: those since the last call, the domain, and how many are open.
extern "C" void spillway_take_nvtx_ranges(std::vector<SpillwayNvtxRange>& ranges,
                                          std::string& domain, int& open);
