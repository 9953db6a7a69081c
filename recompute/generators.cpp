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

/// The GPU on which a call works; else the host.
c10::Device device_of(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& value : arguments) {
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().is_cuda())
      return value.toTensor().device();
    if (value.isDevice() && value.toDevice().is_cuda()) return value.toDevice();
    if (!value.isTensorList()) continue;
    for (const c10::IValue& one : value.toListRef())
      if (one.toTensor().defined() && one.toTensor().is_cuda()) return one.toTensor().device();
  }
  return c10::Device(c10::DeviceType::CPU);
}

}  // namespace

at::Generator generator_of(c10::ArrayRef<c10::IValue> arguments, int position) {
  if (position >= 0) {
    const c10::IValue& given = arguments[static_cast<std::size_t>(position)];
    if (given.isGenerator()) return given.toGenerator();
  }
  const c10::Device device = device_of(arguments);
  return device.is_cuda() ? at::globalContext().defaultGenerator(device)
                          : at::detail::getDefaultCPUGenerator();
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
