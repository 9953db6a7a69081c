#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace awkward {

/// Where this run has its tensors.
at::Device device();

/// A generator of its own for them.
at::Generator new_generator(std::uint64_t seed);

/// The one that is used where none is named.
at::Generator default_generator();

/// A module whose parameters and buffers lie there.
template <typename Module>
Module placed(Module module) {
  if (!device().is_cpu()) module->to(device());
  return module;
}

/// LibTorch's functions of these names, with the device of the run where the options name none.
namespace here {

inline at::TensorOptions with_device(const at::TensorOptions& options) {
  return options.has_device() ? options : options.device(device());
}

inline at::Tensor empty(at::IntArrayRef sizes, const at::TensorOptions& options = {}) {
  return torch::empty(sizes, with_device(options));
}
inline at::Tensor zeros(at::IntArrayRef sizes, const at::TensorOptions& options = {}) {
  return torch::zeros(sizes, with_device(options));
}
inline at::Tensor ones(at::IntArrayRef sizes, const at::TensorOptions& options = {}) {
  return torch::ones(sizes, with_device(options));
}
inline at::Tensor full(at::IntArrayRef sizes, const at::Scalar& value,
                       const at::TensorOptions& options = {}) {
  return torch::full(sizes, value, with_device(options));
}
inline at::Tensor rand(at::IntArrayRef sizes, const at::TensorOptions& options = {}) {
  return torch::rand(sizes, with_device(options));
}
inline at::Tensor randn(at::IntArrayRef sizes, const at::TensorOptions& options = {}) {
  return torch::randn(sizes, with_device(options));
}
inline at::Tensor randn(at::IntArrayRef sizes, const at::Generator& generator) {
  return torch::randn(sizes, generator, with_device({}));
}
inline at::Tensor randint(std::int64_t low, std::int64_t high, at::IntArrayRef sizes,
                          const at::TensorOptions& options = torch::kLong) {
  return torch::randint(low, high, sizes, with_device(options));
}
inline at::Tensor randint(std::int64_t low, std::int64_t high, at::IntArrayRef sizes,
                          const at::Generator& generator) {
  return torch::randint(low, high, sizes, generator, with_device(torch::kLong));
}
inline at::Tensor randperm(std::int64_t count) {
  return torch::randperm(count, with_device(torch::kLong));
}
inline at::Tensor arange(std::int64_t end, const at::TensorOptions& options) {
  return torch::arange(end, with_device(options));
}
inline at::Tensor linspace(double from, double to, std::int64_t count) {
  return torch::linspace(from, to, count, with_device({}));
}
inline at::Tensor eye(std::int64_t rows, const at::TensorOptions& options) {
  return torch::eye(rows, with_device(options));
}

}  // namespace here
}  // namespace awkward
