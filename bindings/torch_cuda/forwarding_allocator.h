#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace spillway::torch_binding {

/// LibTorch's allocator of CUDA memory by another name: each call goes to the one that was there
/// before. As LibTorch 2.11 has its functions, those with a body of their own included, which
/// would refuse or do nothing. Any thread.
class ForwardingAllocator : public c10::cuda::CUDACachingAllocator::CUDAAllocator {
 public:
  using Native = c10::cuda::CUDACachingAllocator::CUDAAllocator;
  using Pool = c10::MempoolId_t;

  /// `native` stays for as long as the process.
  explicit ForwardingAllocator(Native& native) : native_(native) {}

  Native& native() const { return native_; }

  // Of any allocator.
  c10::DataPtr allocate(std::size_t size) override { return native_.allocate(size); }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return native_.is_simple_data_ptr(data);
  }
  c10::DeleterFnPtr raw_deleter() const override { return native_.raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    native_.copy_data(to, from, count);
  }

  // Of an allocator of a device.
  bool initialized() override { return native_.initialized(); }
  void emptyCache(Pool pool = {0, 0}) override { native_.emptyCache(pool); }
  using Native::recordStream;
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return native_.getDeviceStats(device);
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    native_.resetAccumulatedStats(device);
  }
  void resetPeakStats(c10::DeviceIndex device) override { native_.resetPeakStats(device); }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return native_.getMemoryInfo(device);
  }

  // Of CUDA's.
  void* raw_alloc(std::size_t size) override { return native_.raw_alloc(size); }
  void* raw_alloc_with_stream(std::size_t size, cudaStream_t stream) override {
    return native_.raw_alloc_with_stream(size, stream);
  }
  void raw_delete(void* memory) override { native_.raw_delete(memory); }
  void init(int device_count) override { native_.init(device_count); }
  double getMemoryFraction(c10::DeviceIndex device) override {
    return native_.getMemoryFraction(device);
  }
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override {
    native_.setMemoryFraction(fraction, device);
  }
  std::vector<c10::cuda::CUDACachingAllocator::StreamSegmentSize> getExpandableSegmentSizes(
      c10::DeviceIndex device) override {
    return native_.getExpandableSegmentSizes(device);
  }
  void enable(bool value) override { native_.enable(value); }
  bool isEnabled() const override { return native_.isEnabled(); }
  void cacheInfo(c10::DeviceIndex device, std::size_t* largest) override {
    native_.cacheInfo(device, largest);
  }
  void* getBaseAllocation(void* memory, std::size_t* size) override {
    return native_.getBaseAllocation(memory, size);
  }
  void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override {
    native_.recordStream(data, stream);
  }
  c10::cuda::CUDACachingAllocator::SnapshotInfo snapshot(Pool pool = {0, 0},
                                                         bool with_traces = true) override {
    return native_.snapshot(pool, with_traces);
  }

  // Pools of memory, and graphs.
  void beginAllocateToPool(c10::DeviceIndex device, Pool pool,
                           std::function<bool(cudaStream_t)> filter) override {
    native_.beginAllocateToPool(device, pool, std::move(filter));
  }
  void endAllocateToPool(c10::DeviceIndex device, Pool pool) override {
    native_.endAllocateToPool(device, pool);
  }
  void releasePool(c10::DeviceIndex device, Pool pool) override {
    native_.releasePool(device, pool);
  }
  int getPoolUseCount(c10::DeviceIndex device, Pool pool) override {
    return native_.getPoolUseCount(device, pool);
  }
  void createOrIncrefPool(c10::DeviceIndex device, Pool pool,
                          std::shared_ptr<Native> allocator = nullptr) override {
    native_.createOrIncrefPool(device, pool, std::move(allocator));
  }
  void setUseOnOOM(c10::DeviceIndex device, Pool pool, bool use_on_oom) override {
    native_.setUseOnOOM(device, pool, use_on_oom);
  }
  void setNoSplit(c10::DeviceIndex device, Pool pool) override { native_.setNoSplit(device, pool); }
  bool checkPoolLiveAllocations(c10::DeviceIndex device, Pool pool,
                                const std::unordered_set<void*>& expected) override {
    return native_.checkPoolLiveAllocations(device, pool, expected);
  }
  std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState> getCheckpointState(
      c10::DeviceIndex device, Pool pool) override {
    return native_.getCheckpointState(device, pool);
  }
  c10::cuda::CUDACachingAllocator::CheckpointDelta setCheckpointPoolState(
      c10::DeviceIndex device,
      std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState> state) override {
    return native_.setCheckpointPoolState(device, std::move(state));
  }

  // Other processes, other devices.
  c10::cuda::CUDACachingAllocator::ShareableHandle shareIpcHandle(void* memory) override {
    return native_.shareIpcHandle(memory);
  }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    return native_.getIpcDevPtr(std::move(handle));
  }
  void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex peer) override {
    native_.enablePeerAccess(device, peer);
  }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device,
                          std::size_t count, cudaStream_t stream, bool p2p_enabled) override {
    return native_.memcpyAsync(to, to_device, from, from_device, count, stream, p2p_enabled);
  }

  // What it tells of itself.
  bool isHistoryEnabled() override { return native_.isHistoryEnabled(); }
  void recordHistory(bool enabled, c10::CachingDeviceAllocator::CreateContextFn recorder,
                     std::size_t most_entries, c10::CachingDeviceAllocator::RecordContext when,
                     bool clears, const std::vector<std::string>& skipped) override {
    native_.recordHistory(enabled, recorder, most_entries, when, clears, skipped);
  }
  void recordAnnotation(
      const std::vector<std::pair<std::string, std::string>>& annotation) override {
    native_.recordAnnotation(annotation);
  }
  void pushCompileContext(std::string& context) override { native_.pushCompileContext(context); }
  void popCompileContext() override { native_.popCompileContext(); }
  void setUserMetadata(const std::string& metadata) override { native_.setUserMetadata(metadata); }
  std::string getUserMetadata() override { return native_.getUserMetadata(); }
  void attachOutOfMemoryObserver(
      c10::cuda::CUDACachingAllocator::OutOfMemoryObserver observer) override {
    native_.attachOutOfMemoryObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(
      c10::CachingDeviceAllocator::AllocatorTraceTracker tracker) override {
    native_.attachAllocatorTraceTracker(std::move(tracker));
  }
  std::string name() override { return native_.name(); }

 private:
  Native& native_;
};

}  // namespace spillway::torch_binding
