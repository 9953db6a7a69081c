#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <span>
#include <vector>

#include "device_runtimes.h"
#include "spillway/runtime/recording/op_uses.h"

namespace spillway::torch_binding {

/// What the running operator of a thread uses of one device beside the host.
struct DeviceOp {
  c10::Device device{c10::DeviceType::CUDA, 0};
  runtime::Runtime* runtime = nullptr;
  CallRecorder* records = nullptr;
  runtime::OpUses uses;
  std::vector<StorageId> results;  ///< Storages that it hands out.
  bool has_begun = false;
};

/// The same of all these devices. One per thread, for one operator after the other.
class DeviceOps {
 public:
  void clear() { count_ = 0; }

  /// Of a device that is served; null where none is. Valid until the next call.
  DeviceOp* at(c10::Device device) {
    for (DeviceOp& op : used())
      if (op.device == device) return &op;
    runtime::Runtime* const runtime = DeviceRuntimes::of(device);
    if (runtime == nullptr) return nullptr;
    if (count_ == ops_.size()) ops_.emplace_back();
    DeviceOp& op = ops_[count_++];
    op.device = device;
    op.runtime = runtime;
    op.records = DeviceRuntimes::records_of(device);
    op.uses.clear();
    op.results.clear();
    op.has_begun = false;
    return &op;
  }

  std::span<DeviceOp> used() { return {ops_.data(), count_}; }

  /// The operator returns these.
  void note_results(c10::ArrayRef<c10::IValue> results);

 private:
  void note_result(const at::Tensor& result);

  std::vector<DeviceOp> ops_;
  std::size_t count_ = 0;
};

}  // namespace spillway::torch_binding
