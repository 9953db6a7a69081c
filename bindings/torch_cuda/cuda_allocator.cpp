#include "cuda_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "blocks.h"
#include "device_library.h"
#include "device_runtimes.h"
#include "forwarding_allocator.h"
#include "interceptor.h"
#include "out_of_memory.h"
#include "paged_statistics.h"
#include "served_device.h"
#include "spillway/device/all_of.h"
#include "stream_marks.h"

namespace spillway::torch_binding {
namespace {

void release(void* memory);

/// What LibTorch's allocator takes for a block of so many bytes.
Bytes rounded(Bytes size) {
  constexpr std::uint64_t kUnit = 512;
  return Bytes((size.count() + kUnit - 1) / kUnit * kUnit);
}

/// Large blocks come from the runtime of their device, small ones from LibTorch's allocator, where
/// they are counted against the budget. What is allocated while the program fills a pool of its own
/// (graphs do) is LibTorch's alone. Any thread.
class CudaAllocator final : public ForwardingAllocator {
 public:
  using ForwardingAllocator::ForwardingAllocator;

  c10::DataPtr allocate(std::size_t size) override {
    const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
    if (is_in_pool(stream)) return native().allocate(size);
    void* const memory = size == 0 ? nullptr : take(Bytes(size), stream);
    // Its context is the data pointer itself, as raw_allocate asserts.
    return {memory, memory, &release, stream.device()};
  }
  void* raw_alloc(std::size_t size) override {
    return held(allocate(size).release_context(), c10::cuda::current_device());
  }
  void* raw_alloc_with_stream(std::size_t size, cudaStream_t stream) override {
    const c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream();
    if (stream == current.stream()) return raw_alloc(size);
    const auto other = c10::cuda::getStreamFromExternal(stream, current.device_index());
    if (is_in_pool(other)) return native().raw_alloc_with_stream(size, stream);
    const c10::cuda::CUDAStreamGuard behind_its_work(other);  // Which may leave memory to it.
    return size == 0 ? nullptr : held(take(Bytes(size), other), other.device_index());
  }
  void raw_delete(void* memory) override { release(memory); }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return data.get() == data.get_context();
  }

  void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override {
    const std::optional<Block> block = blocks_.find(data.get());
    if (block && block->is_paged) {
      blocks_.add_stream(data.get(), stream);
      return;
    }
    if (!block || data.get_deleter() != &release) {
      native().recordStream(data, stream);
      return;
    }
    // It looks only at pointers with its own deleter.
    c10::DataPtr same(data.get(), data.get_context(), native().raw_deleter(), data.device());
    native().recordStream(same, stream);
    static_cast<void>(same.release_context());
  }

  void* getBaseAllocation(void* memory, std::size_t* size) override {
    const std::optional<Block> block = blocks_.find(memory);
    if (!block || !block->is_paged) return native().getBaseAllocation(memory, size);
    if (size != nullptr) *size = block->size.count();
    return memory;
  }
  c10::cuda::CUDACachingAllocator::ShareableHandle shareIpcHandle(void* memory) override {
    const std::optional<Block> block = blocks_.find(memory);
    TORCH_CHECK(!block || !block->is_paged, "Spillway moves this tensor of ", block->size.count(),
                " bytes, so that no other process can use its memory: send a copy on the host, or "
                "give `spillway run` a --min-storage larger than the tensor");
    return native().shareIpcHandle(memory);
  }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device,
                          std::size_t count, cudaStream_t stream, bool p2p_enabled) override {
    // Only a copy between peers needs no access of the one to memory of the other.
    if (to_device != from_device && (is_paged(to, to_device) || is_paged(from, from_device)))
      return ::cudaMemcpyPeerAsync(to, to_device, from, from_device, count, stream);
    return native().memcpyAsync(to, to_device, from, from_device, count, stream, p2p_enabled);
  }
  /// LibTorch has kernels of `device` write memory of `peer` from now on.
  void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex peer) override {
    native().enablePeerAccess(device, peer);
    with_torch_errors([&] { ServedDevice::of(peer).admit(device); });
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    auto statistics = native().getDeviceStats(device);
    paged_.at(static_cast<std::size_t>(device)).add_to(statistics);
    return statistics;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    native().resetAccumulatedStats(device);
    paged_.at(static_cast<std::size_t>(device)).reset_accumulated();
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    native().resetPeakStats(device);
    paged_.at(static_cast<std::size_t>(device)).reset_peak();
  }

  void beginAllocateToPool(c10::DeviceIndex device, Pool pool,
                           std::function<bool(cudaStream_t)> filter) override {
    {
      const std::lock_guard lock(pools_mutex_);
      pools_.push_back({device, pool, filter});
      pools_begun_.store(pools_.size());
    }
    native().beginAllocateToPool(device, pool, std::move(filter));
  }
  void endAllocateToPool(c10::DeviceIndex device, Pool pool) override {
    native().endAllocateToPool(device, pool);
    const std::lock_guard lock(pools_mutex_);
    pools_.remove_if(
        [&](const BegunPool& begun) { return begun.device == device && begun.pool == pool; });
    pools_begun_.store(pools_.size());
  }

  void empty_cache_of(c10::DeviceIndex device) {
    // LibTorch does without, too, while a graph is captured.
    if (pools_begun_.load() > 0) return;
    using c10::CachingAllocator::StatType;
    const auto statistics = native().getDeviceStats(device);
    const auto all = static_cast<std::size_t>(StatType::AGGREGATE);
    if (statistics.reserved_bytes[all].current > statistics.allocated_bytes[all].current)
      native().emptyCache();
  }

  void give_back(void* memory) noexcept {
    const std::optional<Block> block = blocks_.take(memory);
    if (!block) {
      native().raw_deleter()(memory);  // Older than this allocator, or of a pool.
      return;
    }
    ServedDevice& device = ServedDevice::of(block->device);
    if (block->is_paged) {
      paged_.at(static_cast<std::size_t>(block->device)).freed(block->size);
      device.runtime().deallocate(memory, when_done(device, *block));
      return;
    }
    if (Interceptor::before_free_on({c10::DeviceType::CUDA, block->device}, memory)) {
      blocks_.add(memory, *block);  // Records read it. It comes back here.
      return;
    }
    native().raw_deleter()(memory);
    device.runtime().uncount_other(rounded(block->size));
  }

 private:
  struct BegunPool {
    c10::DeviceIndex device;
    Pool pool;
    std::function<bool(cudaStream_t)> takes;
  };

  bool is_in_pool(c10::cuda::CUDAStream stream) {
    if (pools_begun_.load(std::memory_order_relaxed) == 0) return false;
    // They are LibTorch's, which may want to begin or end one.
    std::vector<std::function<bool(cudaStream_t)>> filters;
    {
      const std::lock_guard lock(pools_mutex_);
      for (const BegunPool& pool : pools_)
        if (pool.device == stream.device_index()) filters.push_back(pool.takes);
    }
    return std::any_of(filters.begin(), filters.end(),
                       [stream](const auto& takes) { return takes(stream.stream()); });
  }

  static bool is_paged(const void* memory, int device) {
    const auto index = static_cast<c10::DeviceIndex>(device);
    return ServedDevice::of(index).runtime().find(memory).storage.is_some();
  }

  /// Memory that no tensor stands for: kernels past the operators use it as they like.
  static void* held(void* memory, c10::DeviceIndex device) {
    runtime::Runtime& runtime = ServedDevice::of(device).runtime();
    if (memory == nullptr || runtime.has_begun_op()) return memory;
    const StorageId storage = runtime.find(memory).storage;
    if (storage.is_some()) runtime.hold_until_freed(storage);
    return memory;
  }

  void* take(Bytes size, c10::cuda::CUDAStream stream) {
    ServedDevice& device = ServedDevice::of(stream.device_index());
    if (size < device.min_storage()) return take_native(device, size, stream);
    Interceptor::before_allocation_on(stream.device());
    // Whether a stream has done what no operator tells of cannot be asked once it is gone.
    return device.runtime().has_begun_op() || !device.is_of_program(stream)
               ? take_paged(device, size, stream)
               : take_native(device, size, stream);
  }

  void* take_paged(ServedDevice& device, Bytes size, c10::cuda::CUDAStream stream) {
    Block block{.size = size, .device = stream.device_index(), .is_paged = true};
    // What no operator makes is used by no operator alone.
    if (!device.runtime().has_begun_op()) block.streams.push_back(stream);
    void* const memory = with_torch_errors([&] { return device.runtime().allocate(size.count()); });
    blocks_.add(memory, std::move(block));
    paged_.at(static_cast<std::size_t>(stream.device_index())).allocated(size);
    return memory;
  }

  void* take_native(ServedDevice& device, Bytes size, c10::cuda::CUDAStream stream) {
    const Bytes counted = rounded(size);
    with_torch_errors([&] { device.runtime().count_other(counted); });
    void* memory = nullptr;
    try {
      memory = take_with_room(device, size, stream);
    } catch (...) {
      device.runtime().uncount_other(counted);
      throw;
    }
    blocks_.add(memory, {.size = size, .device = stream.device_index()});
    return memory;
  }

  void* take_with_room(ServedDevice& device, Bytes size, c10::cuda::CUDAStream stream) {
    const auto allocated = [&] {
      return stream == c10::cuda::getCurrentCUDAStream()
                 ? native().allocate(size.count()).release_context()
                 : native().raw_alloc_with_stream(size.count(), stream);
    };
    try {
      return allocated();
    } catch (const c10::OutOfMemoryError&) {
      // It takes memory from the card in pieces of 2 MiB at least.
      device.runtime().engine().make_room(std::max(2 * size, 2_MiB));
      native().emptyCache();
    }
    return allocated();
  }

  /// When the streams are done with it that no operator has told of.
  static device::Event when_done(ServedDevice& device, const Block& block) {
    std::vector<device::Event> moments;
    for (const c10::cuda::CUDAStream stream : block.streams)
      moments.push_back(device.given_so_far(stream));
    return device::all_of(std::move(moments));
  }

  Blocks blocks_;
  std::array<PagedStatistics, DeviceRuntimes::kMostGpus> paged_;
  std::mutex pools_mutex_;
  std::list<BegunPool> pools_;
  std::atomic<std::size_t> pools_begun_{0};
};

CudaAllocator* installed = nullptr;

void release(void* memory) {
  // A child has no use of CUDA; another thread of its parent may have held a lock.
  if (memory != nullptr && !is_forked_child()) installed->give_back(memory);
}

}  // namespace

void empty_cache_of(c10::DeviceIndex device) { installed->empty_cache_of(device); }

void install_cuda_allocator() {
  constexpr std::uint8_t kHighestPriority = 255;
  auto& place = c10::cuda::CUDACachingAllocator::allocator;
  installed = new CudaAllocator(*place.load());  // It stays: storages outlive everything else.
  place.store(installed);
  // LibTorch asks there, too, and not for the one above.
  c10::SetAllocator(c10::DeviceType::CUDA, installed, kHighestPriority);
}

}  // namespace spillway::torch_binding
