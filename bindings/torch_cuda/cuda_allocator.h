#pragma once

namespace spillway::torch_binding {

/// Puts Spillway's allocator of CUDA memory in the place of LibTorch's, which it keeps and uses.
/// Once, before the program has a CUDA tensor.
void install_cuda_allocator();

}  // namespace spillway::torch_binding
