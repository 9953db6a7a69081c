#pragma once

#include <memory>

#include "spillway/memory/frame_mapper.h"

namespace spillway::memory::signal {

/// Throws UnsupportedError with the reason and the way to mend it.
std::unique_ptr<FrameMapper> make_mapper();

}  // namespace spillway::memory::signal
