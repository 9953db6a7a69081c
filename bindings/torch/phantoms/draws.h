#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>

#include <cstdint>
#include <optional>

namespace spillway::phantoms {

/// How far one state of the generator's engine lies behind another one, in draws of 32 bits.
/// Nothing when that is more than `most`, or never.
std::optional<std::uint64_t> draws_between(const at::mt19937_data_pod& before,
                                           const at::mt19937_data_pod& after, std::uint64_t most);

/// The state after so many draws: about 0.2 ns each, and 3 ms at most.
void skip_draws(at::mt19937_data_pod& state, std::uint64_t draws);

/// Moves a generator of the CPU or of a GPU on; its mutex is taken.
void skip_draws(const at::Generator& generator, std::uint64_t draws);

}  // namespace spillway::phantoms
