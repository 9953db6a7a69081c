#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

namespace spillway::recompute {

/// The GPU that a call uses or names; nothing: it works on the host alone.
std::optional<c10::Device> gpu_of(c10::ArrayRef<c10::IValue> arguments);

/// The generator that a call draws from: its argument at `position`, where it has one there (-1: it
/// has none), else the default one of its GPU or of the host.
at::Generator generator_of(c10::ArrayRef<c10::IValue> arguments, int position);

/// Whether it is LibTorch's own for the CPU.
bool can_restore(const at::Generator& generator);

/// Whether `copy_of` works: it is that, or one of a GPU.
bool can_copy(const at::Generator& generator);

/// A generator in the same state. Any thread, also while others draw.
at::Generator copy_of(const at::Generator& generator);

/// The number that a generator gives next, which it still does; of one of a GPU a number of its
/// seed and place, of others the seed. Any thread, also while others draw.
std::uint64_t next_draw_of(const at::Generator& generator);

/// Of the CPU or of CUDA. Nobody may draw from them meanwhile: for copies.
bool same_state(const at::Generator& a, const at::Generator& b);

}  // namespace spillway::recompute
