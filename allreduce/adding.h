#pragma once

#include <cstddef>
#include <span>

#include "spillway/allreduce/sum.h"

namespace spillway::allreduce {

/// Writes (sources[0] + sources[1] + …) · factor to `target`, which may be one of them. Each has
/// `size`, of whole elements.
void add_up(Element element, std::span<const std::byte* const> sources, std::byte* target,
            Bytes size, double factor);

}  // namespace spillway::allreduce
