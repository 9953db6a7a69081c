#pragma once

#include <driver_types.h>

#include <cstdint>

namespace spillway::emulated {

/// Launches a kernel that adds 1 to each of `count` floats of a device: through cudaLaunchKernel,
/// as the code does that nvcc makes.
void launch_increment(float* data, std::int64_t count, cudaStream_t stream);

/// Launches a kernel that nothing emulates, and gives the error.
cudaError_t launch_unknown(cudaStream_t stream);

}  // namespace spillway::emulated
