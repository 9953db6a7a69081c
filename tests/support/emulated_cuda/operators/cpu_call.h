#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <cuda_runtime_api.h>

#include <vector>

#include "operator_facts.h"
#include "random.h"

namespace spillway::emulated {

/// A tensor argument on the device and its twin on the CPU, which lies over the same bytes.
struct Twin {
  at::Tensor real;  ///< Undefined once the call has been enqueued: the queue keeps no memory alive.
  at::Tensor alias;
  bool is_written;
};

/// One call of an operator, with tensors of the CPU over the memory of the device.
class CpuCall {
 public:
  /// Throws where a kernel would refuse the arguments: tensors of several devices, of the host, or
  /// not strided.
  CpuCall(const c10::OperatorHandle& op, const OperatorFacts& facts,
          c10::ArrayRef<c10::IValue> arguments);

  /// Tells the check what this call reads and writes. The stream must have begun it.
  void tell_accesses(cudaStream_t stream) const;
  /// Ends the process where an argument is not mapped memory of the device; nothing has been read
  /// then.
  void check_memory() const;
  /// Leaves the results of the CPU in `values`.
  void run();
  /// Gives the arguments that the operator has resized their new sizes and bytes. Returns whether
  /// there were any.
  bool take_over_resized(cudaStream_t stream);
  void forget_real();

  const OperatorFacts& facts() const { return *facts_; }
  c10::DeviceIndex device() const { return device_; }
  const std::vector<Twin>& twins() const { return twins_; }
  const torch::jit::Stack& values() const { return values_; }
  /// Whether it can run later, when host memory may have changed.
  bool can_wait() const { return !needs_host_memory_; }

 private:
  c10::IValue converted(const c10::IValue& value, bool is_written);
  at::Tensor converted(const at::Tensor& tensor, bool is_written);
  at::Tensor host_tensor(const at::Tensor& tensor, bool is_written);
  c10::Storage storage_over(const at::Tensor& real);
  at::Tensor alias_of(const at::Tensor& real);
  void use_device(c10::DeviceIndex device);
  void take_draws();

  c10::OperatorHandle op_;
  const OperatorFacts* facts_;
  torch::jit::Stack values_;  ///< Arguments, and after the run results.
  std::vector<Twin> twins_;
  std::vector<std::pair<const c10::StorageImpl*, c10::Storage>> storages_;
  Draws draws_;
  c10::DeviceIndex device_ = -1;
  bool needs_host_memory_ = false;
};

/// From the first to the last byte that the tensor may touch.
std::size_t extent(const at::Tensor& tensor);
void* address(const at::Tensor& tensor);

}  // namespace spillway::emulated
