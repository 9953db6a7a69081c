#pragma once

#include <cstdint>

namespace spillway::schedule {

/// When an action ran. A receive begins where it stands in its action list and ends when what it is
/// for has arrived; a reduction has the same span on all its ranks, from when the last one has
/// come. The orders count all begins and ends of compute in the order in which they happened: one
/// that does not depend on rounding.
struct ActionSpan {
  double start_seconds = 0.0;
  double end_seconds = 0.0;
  std::uint64_t start_order = 0;
  std::uint64_t end_order = 0;
};

}  // namespace spillway::schedule
