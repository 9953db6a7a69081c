#pragma once

#include <driver_types.h>

#include <cstddef>
#include <functional>

namespace spillway::emulated {

/// Submits `run`, which writes these bytes of a device.
cudaError_t fill(void* address, std::size_t bytes, cudaStream_t stream, std::function<void()> run);

}  // namespace spillway::emulated
