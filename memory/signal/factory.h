#pragma once

#include <cstdint>
#include <memory>

#include "spillway/memory/frame_mapper.h"

namespace spillway::memory::signal {

/// How a frame gets from one place to another.
enum class Movement {
  kRemap,  ///< mremap, which leaves its place mapped.
  kCopy,   ///< Its bytes are copied to memory that is put in place.
};

/// How many of the kernel's mappings a frame takes in the worst case.
std::uint64_t mappings_per_frame(Movement movement);

/// Its `reserve` throws UnsupportedError with the reason and the way to mend it.
std::unique_ptr<FrameMapper> make_mapper(Movement movement);

}  // namespace spillway::memory::signal
