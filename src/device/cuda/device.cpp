#include "device.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "direct_files.h"
#include "near_node.h"
#include "queue.h"
#include "spillway/base/error.h"
#include "spillway/base/log.h"

namespace spillway::device {
namespace {

constexpr std::uint64_t kAlignment = std::uint64_t{2} << 20;

std::uint64_t rounded(std::uint64_t count) {
  return (count + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

CudaDevice::CudaDevice(std::shared_ptr<CudaContext> context, const Capabilities& capabilities,
                       std::optional<int> node)
    : Device(context->device(), capabilities), context_(std::move(context)), node_(node) {}

MemoryInfo CudaDevice::do_memory() const {
  const OnDevice on(*context_);
  std::size_t free = 0;
  std::size_t total = 0;
  const cudaError_t error = context_->cuda().cudaMemGetInfo(&free, &total);
  if (error != cudaSuccess)
    throw Error("device {} does not tell its memory: {}", id(),
                context_->cuda().failure(id(), error));
  return {Bytes(total), Bytes(free)};
}

DirectFileIo::Opened CudaDevice::open_file(int descriptor, DirectFiles asked) {
  return open_cuda_file(context_, descriptor, asked);
}

std::byte* CudaDevice::do_allocate(Bytes size) {
  const MemoryInfo info = do_memory();
  if (size > info.total)
    throw Error("device {} has no {} of memory: it has {}", id(), size, info.total);
  const OnDevice on(*context_);
  const CudaFunctions& cuda = context_->cuda();
  void* memory = nullptr;
  // Of nothing, too. Whole pieces are aligned as a rule; CUDA promises 256 bytes.
  std::uint64_t wanted = rounded(std::max<std::uint64_t>(size.count(), 1));
  cudaError_t error = cuda.cudaMalloc(&memory, wanted);
  if (error == cudaSuccess && reinterpret_cast<std::uintptr_t>(memory) % kAlignment != 0) {
    cuda.cudaFree(std::exchange(memory, nullptr));
    wanted += kAlignment;
    error = cuda.cudaMalloc(&memory, wanted);
  }
  if (error != cudaSuccess)
    throw Error("device {} has no {} of memory: {}; {} of {} are free", id(), size,
                cuda.failure(id(), error), info.free, info.total);
  auto* const address =
      reinterpret_cast<std::byte*>(rounded(reinterpret_cast<std::uintptr_t>(memory)));
  const std::lock_guard lock(mutex_);
  allocations_.emplace(address, memory);
  return address;
}

void CudaDevice::do_release(DeviceSpan memory) noexcept {
  void* given = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto at = allocations_.find(memory.data);
    SPILLWAY_ASSERT(at != allocations_.end());
    given = at->second;
    allocations_.erase(at);
  }
  const OnDevice on(*context_);
  // Only a lost device refuses, which has no memory any more.
  if (context_->cuda().cudaFree(given) != cudaSuccess) context_->cuda().cudaGetLastError();
}

std::unique_ptr<Queue> CudaDevice::do_make_queue(const std::string& name) {
  return std::make_unique<CudaQueue>(context_, name);
}

void CudaDevice::bring_near(DeviceSpan host) {
  if (!node_) return;
  const std::string refusal = prefer_node(host, *node_);
  if (refusal.empty() || has_told_of_node_.exchange(true)) return;
  log_warning("memory pinned for {} lies on any NUMA node, where that of the GPU ({}) is nearer: "
              "the kernel refuses to prefer it: {}",
              id(), *node_, refusal);
}

std::string CudaDevice::do_pin_host(DeviceSpan host) {
  bring_near(host);  // Pinned pages stay on their node.
  const OnDevice on(*context_);
  const CudaFunctions& cuda = context_->cuda();
  // For all devices: copies between two GPUs may go this way.
  const cudaError_t error =
      cuda.cudaHostRegister(host.data, host.size.count(), cudaHostRegisterPortable);
  if (error == cudaSuccess) return {};
  const char* const mend =
      error == cudaErrorMemoryAllocation
          ? "; the system lends GPUs no more of its memory: ask for less, or free some"
          : "";
  return message("{} cannot be pinned for {}: {}{}", host.size, id(), cuda.failure(id(), error),
                 mend);
}

void CudaDevice::do_unpin_host(DeviceSpan host) noexcept {
  const OnDevice on(*context_);
  if (context_->cuda().cudaHostUnregister(host.data) != cudaSuccess)
    context_->cuda().cudaGetLastError();
}

}  // namespace spillway::device
