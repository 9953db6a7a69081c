#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "context.h"
#include "spillway/device/device.h"
#include "spillway/device/direct_files.h"

namespace spillway::device {

/// A GPU of NVIDIA.
class CudaDevice final : public Device, public DirectFileIo {
 public:
  CudaDevice(std::shared_ptr<CudaContext> context, const Capabilities& capabilities);

  const std::shared_ptr<CudaContext>& context() const { return context_; }

  Opened open_file(int descriptor, DirectFiles asked) override;

 private:
  MemoryInfo do_memory() const override;
  std::byte* do_allocate(Bytes size) override;
  void do_release(DeviceSpan memory) noexcept override;
  std::unique_ptr<Queue> do_make_queue(const std::string& name) override;
  std::string do_pin_host(DeviceSpan host) override;
  void do_unpin_host(DeviceSpan host) noexcept override;

  const std::shared_ptr<CudaContext> context_;
  std::mutex mutex_;
  std::map<std::byte*, void*> allocations_;  ///< By address: what CUDA gave.
};

}  // namespace spillway::device
