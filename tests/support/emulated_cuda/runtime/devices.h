#pragma once

namespace spillway::emulated {

/// The device of the calling thread, as cudaSetDevice chose it.
int current_device();
void set_current_device(int device);

bool is_device(int device);

}  // namespace spillway::emulated
