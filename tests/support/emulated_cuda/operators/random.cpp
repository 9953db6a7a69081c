#include "random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/ops/scalar_tensor.h>

#include <mutex>

#include "settings.h"

namespace spillway::emulated {
namespace {

// What a kernel with one draw a thread takes; kernels with more would only move further.
constexpr std::uint64_t kOffsetStep = 4;

std::uint64_t next_seed(at::Generator& cuda) {
  const std::lock_guard lock(cuda.mutex());
  auto* state = at::check_generator<at::CUDAGeneratorImpl>(cuda);
  const std::uint64_t offset = state->get_offset();
  state->set_offset(offset + kOffsetStep);
  return seed_of(state->current_seed(), offset);
}

Draws draws_from(std::uint64_t seed) {
  const at::Tensor origin = at::scalar_tensor(std::int64_t(seed), at::TensorOptions(at::kLong));
  return {generator_of(origin), origin, nullptr, nullptr, 0};
}

}  // namespace

std::uint64_t seed_of(std::uint64_t first, std::uint64_t second) {
  std::uint64_t mixed = first ^ (second + 0x9e3779b97f4a7c15ULL + (first << 6) + (first >> 2));
  mixed *= 0xff51afd7ed558ccdULL;
  return mixed ^ (mixed >> 33);
}

Draws next_draws(const std::optional<at::Generator>& given, c10::DeviceIndex device) {
  const bool is_given = given && given->defined();
  if (settings().draws_as_cpu && !is_given) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    return {generator, generator.get_state(), nullptr, nullptr, 0};
  }
  at::Generator cuda = is_given ? *given : at::cuda::detail::getDefaultCUDAGenerator(device);
  return draws_from(next_seed(cuda));
}

Draws draws_of_graph(const std::optional<at::Generator>& given, c10::DeviceIndex device) {
  at::Generator cuda =
      given && given->defined() ? *given : at::cuda::detail::getDefaultCUDAGenerator(device);
  const std::lock_guard lock(cuda.mutex());
  const at::PhiloxCudaState state =
      at::check_generator<at::CUDAGeneratorImpl>(cuda)->philox_cuda_state(kOffsetStep);
  Draws draws;
  draws.seed = state.seed_.ptr;
  draws.offset = state.offset_.ptr;
  draws.further = state.offset_intragraph_;
  return draws;
}

Draws launched(const Draws& of_graph) {
  return draws_from(
      seed_of(std::uint64_t(*of_graph.seed), std::uint64_t(*of_graph.offset) + of_graph.further));
}

at::Generator generator_of(const at::Tensor& origin) {
  if (origin.scalar_type() == at::kLong)
    return at::make_generator<at::CPUGeneratorImpl>(
        std::uint64_t(*origin.const_data_ptr<std::int64_t>()));
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>();
  generator.set_state(origin);
  return generator;
}

}  // namespace spillway::emulated
