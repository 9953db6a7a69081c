#pragma once

#include <ATen/core/Generator.h>

namespace spillway::recompute {

/// Whether a generator can be copied with its state: it is LibTorch's own for the CPU.
bool can_restore(const at::Generator& generator);

/// A generator in the same state. Any thread, also while others draw.
at::Generator copy_of(const at::Generator& generator);

/// Nobody may draw from them meanwhile: for copies.
bool same_state(const at::Generator& a, const at::Generator& b);

}  // namespace spillway::recompute
