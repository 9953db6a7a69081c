#include "copies.h"

#include <ATen/core/Tensor.h>
#include <ATen/cuda/PeerToPeerAccess.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "cpu_call.h"
#include "kernels_alone.h"
#include "support/emulated_cuda/runtime/emulation.h"

namespace spillway::emulated {
namespace {

constexpr std::size_t kArguments = 3;  // self, src, non_blocking

bool is_one_block(const at::Tensor& self, const at::Tensor& source) {
  if (self.dtype() != source.dtype() || self.is_conj() != source.is_conj() ||
      self.is_neg() != source.is_neg() || self.sizes() != source.sizes())
    return false;
  if (self.is_contiguous() && source.is_contiguous()) return true;
  return self.is_non_overlapping_and_dense() && self.strides() == source.strides();
}

/// From now on the stream waits for what the other one was given.
void follow(c10::cuda::CUDAStream stream, c10::cuda::CUDAStream other) {
  // A default stream is that of the current device.
  c10::cuda::CUDAGuard device(other.device());
  cudaEvent_t event = nullptr;
  C10_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  C10_CUDA_CHECK(cudaEventRecord(event, other));
  device.set_device(stream.device());
  C10_CUDA_CHECK(cudaStreamWaitEvent(stream, event, 0));
  C10_CUDA_CHECK(cudaEventDestroy(event));
}

at::Tensor on_host(const at::Tensor& tensor) {
  at::Tensor alias = at::from_blob(address(tensor), tensor.sizes(), tensor.strides(),
                                   at::TensorOptions().dtype(tensor.dtype()));
  alias._set_conj(tensor.is_conj());
  alias._set_neg(tensor.is_neg());
  return alias;
}

/// A kernel of the source's device, which writes the other one's memory: as LibTorch has it where
/// devices reach one another.
void copy_by_kernel(const at::Tensor& self, const at::Tensor& source) {
  constexpr const char* kName = "copy between peers";
  const auto there = c10::cuda::getCurrentCUDAStream(self.get_device());
  const auto here = c10::cuda::getCurrentCUDAStream(source.get_device());
  follow(here, there);
  const c10::cuda::CUDAGuard device(source.device());
  emu_cuda_begin(here);
  emu_cuda_use(here, address(source), extent(source), 0, kName);
  emu_cuda_use(here, address(self), extent(self), 1, kName);
  emu_cuda_drain(here);
  {
    const KernelsAlone guard;
    on_host(self).copy_(on_host(source));
  }
  follow(there, here);
}

/// Through blocks of like layout, one on either device.
void copy_between_devices(const at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  const at::Tensor sent = at::empty(self.sizes(), source.options().dtype(self.dtype()));
  sent.copy_(source);
  const at::Tensor received = self.is_contiguous() ? self : at::empty(self.sizes(), self.options());
  received.copy_(sent, non_blocking);
  if (!received.is_same(self)) self.copy_(received);
}

}  // namespace

bool copied_by_the_runtime(torch::jit::Stack& stack) {
  at::Tensor self = torch::jit::peek(stack, 0, kArguments).toTensor();
  const at::Tensor source = torch::jit::peek(stack, 1, kArguments).toTensor();
  const bool non_blocking = torch::jit::peek(stack, 2, kArguments).toBool();
  const bool is_on_device = self.is_cuda() && source.is_cuda();
  const bool is_on_one = is_on_device && self.device() == source.device();
  const bool needs_kernel = !self.is_same(source) && !is_one_block(self, source);
  if (is_on_one && needs_kernel) return false;
  if (!is_on_device || !needs_kernel)
    at::native::copy_(self, source, non_blocking);
  else if (at::cuda::get_p2p_access(source.get_device(), self.get_device()))
    copy_by_kernel(self, source);
  else
    copy_between_devices(self, source, non_blocking);
  torch::jit::drop(stack, kArguments);
  stack.emplace_back(self);
  return true;
}

}  // namespace spillway::emulated
