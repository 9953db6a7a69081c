#include "copies.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty.h>

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
  if (is_on_device && needs_kernel)
    copy_between_devices(self, source, non_blocking);
  else
    at::native::copy_(self, source, non_blocking);
  torch::jit::drop(stack, kArguments);
  stack.emplace_back(self);
  return true;
}

}  // namespace spillway::emulated
