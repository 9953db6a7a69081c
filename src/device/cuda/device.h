#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "context.h"
#include "spillway/device/device.h"
#include "spillway/device/direct_files.h"

namespace spillway::device {

/// A GPU of NVIDIA.
class CudaDevice final : public Device, public DirectFileIo {
 public:
  /// `node`: the NUMA node that host memory is pinned on, as long as it has some; none: anywhere.
  CudaDevice(std::shared_ptr<CudaContext> context, const Capabilities& capabilities,
             std::optional<int> node);

  const std::shared_ptr<CudaContext>& context() const { return context_; }

  Opened open_file(int descriptor, DirectFiles asked) override;

 private:
  MemoryInfo do_memory() const override;
  std::byte* do_allocate(Bytes size) override;
  void do_release(DeviceSpan memory) noexcept override;
  std::unique_ptr<Queue> do_make_queue(const std::string& name) override;
  void bring_near(DeviceSpan host);
  std::string do_pin_host(DeviceSpan host) override;
  void do_unpin_host(DeviceSpan host) noexcept override;

  const std::shared_ptr<CudaContext> context_;
  const std::optional<int> node_;
  std::atomic<bool> has_told_of_node_ = false;
  std::mutex mutex_;
  std::map<std::byte*, void*> allocations_;  ///< By address: what CUDA gave.
};

}  // namespace spillway::device
