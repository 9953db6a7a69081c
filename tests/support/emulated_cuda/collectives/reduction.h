#pragma once

#include <cstddef>

#include "nccl_api.h"

namespace spillway::emulated {

/// Bytes of a value; 0 for a type that is not emulated.
std::size_t size_of(ncclDataType_t type);

/// into[i] = into[i] (how) from[i], in the type itself; ncclAvg adds.
void combine(void* into, const void* from, std::size_t count, ncclDataType_t type, ncclRedOp_t how);

/// values[i] /= ranks.
void divide(void* values, std::size_t count, ncclDataType_t type, int ranks);

}  // namespace spillway::emulated
