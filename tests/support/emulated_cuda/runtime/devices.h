#pragma once

#include <driver_types.h>

namespace spillway::emulated {

/// The device of the calling thread, as cudaSetDevice chose it.
int current_device();
void set_current_device(int device);

bool is_device(int device);

/// Whether kernels of the device may use memory of the other (cudaDeviceEnablePeerAccess).
bool is_peer_enabled(int device, int peer);

/// What a device that is lost (emu_cuda_lose) answers to everything; cudaSuccess: it is not. Kept
/// as the thread's last error.
cudaError_t error_of_lost(int device);
/// The same for functions of the driver, which leave nothing with the thread.
cudaError_t loss_of(int device);

}  // namespace spillway::emulated
