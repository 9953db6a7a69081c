#pragma once

#include <cstdint>

namespace spillway::torch_binding {

/// Puts Spillway's allocator of CUDA memory in the place of LibTorch's, which it keeps and uses.
/// Once, before the program has a CUDA tensor.
void install_cuda_allocator();

/// Has LibTorch's own allocator give memory of that device back that it keeps for later blocks.
/// Does nothing while the program fills a pool, as graphs do. Any thread.
void empty_cache_of(std::int8_t device);

}  // namespace spillway::torch_binding
