#include "spillway/recompute/generators.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <mutex>

#include "spillway/base/mix.h"

namespace spillway::recompute {
namespace {

at::CPUGeneratorImpl& state_of(const at::Generator& generator) {
  return *static_cast<at::CPUGeneratorImpl*>(generator.unsafeGetGeneratorImpl());
}

}  // namespace

std::optional<c10::Device> gpu_of(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& value : arguments) {
    if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      if (tensor.defined() && tensor.is_cuda()) return tensor.device();
    } else if (value.isDevice()) {
      if (value.toDevice().is_cuda()) return value.toDevice();
    } else if (value.isList() && !value.isIntList() && !value.isDoubleList()) {
      if (const auto of_element = gpu_of(value.toListRef())) return of_element;
    }
  }
  return std::nullopt;
}

at::Generator generator_of(c10::ArrayRef<c10::IValue> arguments, int position) {
  if (position >= 0) {
    const c10::IValue& given = arguments[static_cast<std::size_t>(position)];
    if (given.isGenerator()) return given.toGenerator();
  }
  const auto gpu = gpu_of(arguments);
  return gpu ? at::globalContext().defaultGenerator(*gpu) : at::detail::getDefaultCPUGenerator();
}

bool can_restore(const at::Generator& generator) {
  return generator.defined() &&
         dynamic_cast<at::CPUGeneratorImpl*>(generator.unsafeGetGeneratorImpl()) != nullptr;
}

bool can_copy(const at::Generator& generator) {
  return can_restore(generator) || (generator.defined() && generator.device().is_cuda());
}

at::Generator copy_of(const at::Generator& generator) {
  const std::lock_guard lock(generator.unsafeGetGeneratorImpl()->mutex_);
  return generator.clone();
}

std::uint64_t next_draw_of(const at::Generator& generator) {
  const std::lock_guard lock(generator.unsafeGetGeneratorImpl()->mutex_);
  if (generator.device().is_cuda())
    return mix(generator.current_seed(), generator.unsafeGetGeneratorImpl()->get_offset());
  if (!can_restore(generator)) return generator.current_seed();
  at::mt19937 copy = state_of(generator).engine();
  return copy();
}

bool same_state(const at::Generator& a, const at::Generator& b) {
  if (!can_restore(a))
    return a.current_seed() == b.current_seed() && a.get_offset() == b.get_offset();
  at::CPUGeneratorImpl& first = state_of(a);
  at::CPUGeneratorImpl& second = state_of(b);
  const at::mt19937_data_pod one = first.engine().data();
  const at::mt19937_data_pod other = second.engine().data();
  return one.seed_ == other.seed_ && one.left_ == other.left_ && one.seeded_ == other.seeded_ &&
         one.next_ == other.next_ && one.state_ == other.state_ &&
         first.next_float_normal_sample() == second.next_float_normal_sample() &&
         first.next_double_normal_sample() == second.next_double_normal_sample();
}

}  // namespace spillway::recompute
