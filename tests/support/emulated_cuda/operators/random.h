#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>

namespace spillway::emulated {

/// Where the random numbers of one call come from.
struct Draws {
  at::Generator generator;  ///< Of the CPU.
  at::Tensor origin;        ///< On the CPU; with it the same numbers may be drawn again.
  /// In a graph: where each launch finds what the draws begin with, on the device.
  const std::int64_t* seed = nullptr;
  const std::int64_t* offset = nullptr;
  std::uint64_t further = 0;  ///< Behind that offset.
};

/// Takes the next draws of the CUDA generator: a generator of the CPU, seeded from its seed and
/// offset, which moves on. With EMU_RNG=cpu, and no generator given, they are those of the CPU's
/// default generator, as a trainer on the CPU would get them. Any thread, at the moment of the
/// call.
Draws next_draws(const std::optional<at::Generator>& given, c10::DeviceIndex device);

/// The same for a call that becomes part of a graph, whose draws are known at a launch.
Draws draws_of_graph(const std::optional<at::Generator>& given, c10::DeviceIndex device);
/// At a launch, on the stream.
Draws launched(const Draws& of_graph);

/// The generator as it was when `origin` was made.
at::Generator generator_of(const at::Tensor& origin);

/// Spreads two numbers over one seed.
std::uint64_t seed_of(std::uint64_t first, std::uint64_t second);

}  // namespace spillway::emulated
