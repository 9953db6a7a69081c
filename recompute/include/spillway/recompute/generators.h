#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>

#include <cstdint>

namespace spillway::recompute {

/// The generator that a call draws from: its argument at `position`, where it has one there (-1: it
/// has none), else the default one.
at::Generator generator_of(c10::ArrayRef<c10::IValue> arguments, int position);

/// Whether it is LibTorch's own for the CPU.
bool can_restore(const at::Generator& generator);

/// A generator in the same state. Any thread, also while others draw.
at::Generator copy_of(const at::Generator& generator);

/// The number that a generator gives next, which it still does; the seed of one that is not
/// LibTorch's own for the CPU. Any thread, also while others draw.
std::uint64_t next_draw_of(const at::Generator& generator);

/// Of the CPU or of CUDA. Nobody may draw from them meanwhile: for copies.
bool same_state(const at::Generator& a, const at::Generator& b);

}  // namespace spillway::recompute
