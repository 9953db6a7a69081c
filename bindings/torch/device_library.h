#pragma once

namespace spillway::torch_binding {

/// Where the program has LibTorch's CUDA part, opens the library that serves its tensors, if it is
/// installed beside this one. Throws UnsupportedError where it cannot be opened. Once, before the
/// program has a CUDA tensor.
void open_cuda_library();

/// Of that library: `void()`, which begins to serve.
inline constexpr const char* kServeCuda = "spillway_serve_cuda";

}  // namespace spillway::torch_binding
