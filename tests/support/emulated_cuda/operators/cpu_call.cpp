#include "cpu_call.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/clone.h>
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <cstring>

#include "kernels_alone.h"
#include "settings.h"
#include "support/emulated_cuda/runtime/emulation.h"

namespace spillway::emulated {
namespace {

void copy_marks(const at::Tensor& from, const at::Tensor& to) {
  if (from.is_conj()) to._set_conj(true);
  if (from.is_neg()) to._set_neg(true);
  if (from.unsafeGetTensorImpl()->is_wrapped_number())
    to.unsafeGetTensorImpl()->set_wrapped_number(true);
}

bool is_resized(const Twin& twin) {
  return twin.alias.sizes() != twin.real.sizes() || twin.alias.strides() != twin.real.strides() ||
         (twin.alias.numel() > 0 && address(twin.alias) != address(twin.real));
}

}  // namespace

std::size_t extent(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) return 0;
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize());
}

void* address(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  auto* base = static_cast<char*>(const_cast<void*>(storage.data()));
  if (base == nullptr) return nullptr;
  return base + tensor.storage_offset() * std::int64_t(tensor.itemsize());
}

CpuCall::CpuCall(const c10::OperatorHandle& op, const OperatorFacts& facts,
                 c10::ArrayRef<c10::IValue> arguments)
    : op_(op), facts_(&facts) {
  values_.reserve(arguments.size());
  const bool in_training = facts.statistics.empty() || facts.training < 0 ||
                           arguments[std::size_t(facts.training)].toBool();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool is_statistic = std::find(facts.statistics.begin(), facts.statistics.end(), int(i)) !=
                              facts.statistics.end();
    values_.push_back(converted(arguments[i], facts.writes[i] || (is_statistic && in_training)));
  }
  if (device_ < 0) device_ = c10::cuda::current_device();
  take_draws();
}

void CpuCall::use_device(c10::DeviceIndex device) {
  TORCH_CHECK(device_ < 0 || device_ == device, "emulated CUDA: ", facts_->name,
              " has tensors on cuda:", int(device_), " and cuda:", int(device),
              "; a kernel runs on one device");
  device_ = device;
}

c10::IValue CpuCall::converted(const c10::IValue& value, bool is_written) {
  if (value.isTensor()) return converted(value.toTensor(), is_written);
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector())
      list.push_back(converted(tensor, is_written));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& tensor : value.toOptionalTensorVector())
      list.push_back(tensor ? std::optional(converted(*tensor, is_written)) : std::nullopt);
    return list;
  }
  if (value.isDevice() && value.toDevice().is_cuda()) {
    const c10::DeviceIndex index = value.toDevice().index();
    use_device(index < 0 ? c10::cuda::current_device() : index);
    return c10::Device(at::kCPU);
  }
  return value;
}

at::Tensor CpuCall::converted(const at::Tensor& tensor, bool is_written) {
  if (!tensor.defined()) return tensor;
  if (!tensor.is_cuda()) return host_tensor(tensor, is_written);
  use_device(tensor.get_device());
  twins_.push_back({tensor, alias_of(tensor), is_written});
  return twins_.back().alias;
}

at::Tensor CpuCall::host_tensor(const at::Tensor& tensor, bool is_written) {
  if (is_written || (tensor.dim() > 0 && tensor.numel() > 0)) {
    TORCH_CHECK(facts_->takes_host_tensors, "emulated CUDA: ", facts_->name,
                " has a tensor in host memory beside those of the device, of sizes ",
                tensor.sizes(), "; a kernel takes such a tensor only when it has no dimension");
    needs_host_memory_ = true;
    return tensor;
  }
  // A kernel gets its value at the launch.
  const KernelsAlone guard;
  at::Tensor copy = at::clone(tensor);
  copy_marks(tensor, copy);
  return copy;
}

c10::Storage CpuCall::storage_over(const at::Tensor& real) {
  c10::StorageImpl* storage = real.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  for (const auto& [known, alias] : storages_)
    if (known == storage) return alias;
  void* bytes = storage->mutable_data();  // A copy-on-write storage gets bytes of its own.
  c10::Storage alias(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), storage->nbytes(), c10::DataPtr(bytes, at::kCPU),
      c10::GetAllocator(at::kCPU), /*resizable=*/true));
  storages_.emplace_back(storage, alias);
  return alias;
}

at::Tensor CpuCall::alias_of(const at::Tensor& real) {
  TORCH_CHECK(real.layout() == at::kStrided, "emulated CUDA: ", facts_->name,
              " has a tensor of layout ", real.layout(), "; only strided ones are emulated");
  at::Tensor alias = at::detail::make_tensor<c10::TensorImpl>(
      storage_over(real), c10::DispatchKeySet(c10::DispatchKey::CPU), real.dtype());
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(real.sizes(), real.strides(),
                                                     real.storage_offset());
  copy_marks(real, alias);
  // Kernels for the CPU are chosen by it.
  if (at::GradMode::is_enabled() && real.requires_grad()) alias.set_requires_grad(true);
  return alias;
}

void CpuCall::take_draws() {
  if (!facts_->draws) return;
  const KernelsAlone guard;
  if (facts_->mapping != nullptr && facts_->chance >= 0 &&
      values_[std::size_t(facts_->chance)].toDouble() == 0)
    return;
  std::optional<at::Generator> given;
  const bool has_argument = facts_->generator >= 0;
  if (has_argument && values_[std::size_t(facts_->generator)].isGenerator())
    given = values_[std::size_t(facts_->generator)].toGenerator();
  // The default generator of the CPU moves in the order of the program.
  if (settings().draws_as_cpu) needs_host_memory_ = true;
  if (!has_argument && facts_->mapping == nullptr) return;
  if (emu_cuda_captures(c10::cuda::getCurrentCUDAStream(device_).stream()) != 0) {
    TORCH_CHECK(!settings().draws_as_cpu, "emulated CUDA: ", facts_->name,
                " draws from the generator of the CPU, which no graph can");
    draws_ = draws_of_graph(given, device_);
    return;
  }
  draws_ = next_draws(given, device_);
  if (has_argument) values_[std::size_t(facts_->generator)] = draws_.generator;
}

void CpuCall::tell_accesses(cudaStream_t stream) const {
  for (const Twin& twin : twins_)
    if (twin.alias.numel() > 0)
      emu_cuda_use(stream, address(twin.alias), extent(twin.alias), int(twin.is_written),
                   facts_->name.c_str());
  for (const std::int64_t* of_graph : {draws_.seed, draws_.offset})
    if (of_graph != nullptr)
      emu_cuda_use(stream, of_graph, sizeof *of_graph, 0, facts_->name.c_str());
}

void CpuCall::check_memory() const {
  for (const Twin& twin : twins_)
    if (twin.alias.numel() > 0)
      emu_cuda_check(address(twin.alias), extent(twin.alias), facts_->name.c_str());
}

void CpuCall::run() {
  const KernelsAlone guard;
  if (draws_.seed != nullptr) {
    draws_ = launched(draws_);
    if (facts_->generator >= 0) values_[std::size_t(facts_->generator)] = draws_.generator;
  }
  if (facts_->mapping != nullptr)
    values_ = facts_->mapping(Arguments(op_.schema(), values_), draws_);
  else
    op_.callBoxed(values_);
}

bool CpuCall::take_over_resized(cudaStream_t stream) {
  bool found = false;
  for (const Twin& twin : twins_) {
    if (!twin.is_written || !is_resized(twin)) continue;
    found = true;
    twin.real.resize_(twin.alias.sizes());
    if (twin.real.strides() != twin.alias.strides())
      twin.real.as_strided_(twin.alias.sizes(), twin.alias.strides(), twin.real.storage_offset());
    emu_cuda_drain(stream);  // A storage that grew is copied there.
    if (twin.alias.numel() > 0 && address(twin.real) != address(twin.alias))
      std::memcpy(address(twin.real), address(twin.alias), extent(twin.alias));
  }
  return found;
}

void CpuCall::forget_real() {
  for (Twin& twin : twins_) twin.real.reset();
}

}  // namespace spillway::emulated
