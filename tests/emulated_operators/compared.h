#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace spillway::emulated {

using Tensors = std::vector<at::Tensor>;

/// What is to be the same on both devices, whatever it draws from the default generator.
struct Compared {
  std::string name;
  std::function<Tensors(const Tensors&)>
      function;    ///< Of tensors of one device, which its results are on, too.
  Tensors inputs;  ///< On the CPU.
  bool has_gradients = true;
};

/// Runs it on the CPU, and several times on the emulated device, so that operators run at once and
/// on their streams. Expects the same bytes of all results, of the inputs after the run, and of all
/// gradients.
void expect_equal(const Compared& compared);
void expect_equal(const std::vector<Compared>& all);

/// Whether type, sizes and all bytes are the same. Undefined tensors are equal to each other.
bool has_equal_bytes(const at::Tensor& one, const at::Tensor& other);

/// Drawn from a generator of its own: the same for each call of a test.
at::Tensor drawn(at::IntArrayRef sizes);
at::Tensor drawn_integers(std::int64_t below, at::IntArrayRef sizes);

}  // namespace spillway::emulated
