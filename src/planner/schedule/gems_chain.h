#pragma once

#include "spillway/planner/schedule/generators.h"

namespace spillway::planner {

/// Which way a replica walks through the ranks.
enum class GemsDirection : std::uint8_t {
  kSame,     ///< Stage s on rank s in every replica.
  kInTurns,  ///< Stage s on rank s in even replicas, on rank ranks − 1 − s in odd ones.
};

/// Replica by replica: all forwards of a rank's stage, then all its backwards in the same order.
/// Nothing else controls it: the rank that ends a replica's backward first begins the next one's
/// forward. `name` is that of the generator, for errors.
Schedule gems_chain(const ScheduleRequest& request, std::uint32_t replicas, GemsDirection direction,
                    std::string_view name);

}  // namespace spillway::planner
