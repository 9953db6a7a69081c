// What the programs of this folder share: checked calls, the driver's functions, chunks and ranges
// of device memory, threads and streams.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "figures.h"

#define GPU_CHECK(call)                                                                 \
  do {                                                                                  \
    const int status = static_cast<int>(call);                                          \
    if (status != 0) {                                                                  \
      std::fprintf(stderr, "%s:%d: %s: error %d\n", __FILE__, __LINE__, #call, status); \
      std::exit(1);                                                                     \
    }                                                                                   \
  } while (false)

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kGiB = std::size_t{1} << 30;

/// The driver's functions, found at run time: nothing has to be linked that only a driver brings.
struct Driver {
  template <typename Function>
  static Function find(const char* name) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    GPU_CHECK(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
    GPU_CHECK(result);
    return reinterpret_cast<Function>(found);
  }
#define GPU_DRIVER(name, function) decltype(&function) name = find<decltype(&function)>(#function)
  GPU_DRIVER(reserve, cuMemAddressReserve);
  GPU_DRIVER(give_back, cuMemAddressFree);
  GPU_DRIVER(create, cuMemCreate);
  GPU_DRIVER(release, cuMemRelease);
  GPU_DRIVER(map, cuMemMap);
  GPU_DRIVER(unmap, cuMemUnmap);
  GPU_DRIVER(allow, cuMemSetAccess);
  GPU_DRIVER(granularity, cuMemGetAllocationGranularity);
  GPU_DRIVER(attribute, cuDeviceGetAttribute);
  GPU_DRIVER(wait_for_value, cuStreamWaitValue32);
#undef GPU_DRIVER
};

inline const Driver& driver() {
  static const Driver functions;
  return functions;
}

inline CUmemAllocationProp properties() {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return wanted;
}

inline void allow(CUdeviceptr at, std::size_t bytes) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  GPU_CHECK(driver().allow(at, bytes, &access, 1));
}

/// Physical device memory in pieces of one size.
class Chunks {
 public:
  Chunks(std::size_t chunk_bytes, std::size_t count) : handles_(count) {
    const CUmemAllocationProp wanted = properties();
    for (auto& handle : handles_) GPU_CHECK(driver().create(&handle, chunk_bytes, &wanted, 0));
  }
  ~Chunks() {
    for (const auto handle : handles_) GPU_CHECK(driver().release(handle));
  }
  Chunks(const Chunks&) = delete;
  Chunks& operator=(const Chunks&) = delete;

  std::size_t count() const { return handles_.size(); }
  CUmemGenericAllocationHandle operator[](std::size_t index) const { return handles_[index]; }

 private:
  std::vector<CUmemGenericAllocationHandle> handles_;
};

/// Addresses for `places` chunks, nothing mapped.
class Range {
 public:
  Range(std::size_t chunk_bytes, std::size_t places)
      : chunk_(chunk_bytes), bytes_(chunk_bytes * places) {
    GPU_CHECK(driver().reserve(&start_, bytes_, 0, 0, 0));
  }
  ~Range() { GPU_CHECK(driver().give_back(start_, bytes_)); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  CUdeviceptr at(std::size_t place) const { return start_ + place * chunk_; }
  char* pointer(std::size_t place = 0) const { return reinterpret_cast<char*>(at(place)); }
  std::size_t bytes() const { return bytes_; }

  void map(std::size_t place, CUmemGenericAllocationHandle handle) const {
    GPU_CHECK(driver().map(at(place), chunk_, 0, handle, 0));
  }
  void allow(std::size_t place, std::size_t count = 1) const { ::allow(at(place), count * chunk_); }
  void unmap(std::size_t place, std::size_t count = 1) const {
    GPU_CHECK(driver().unmap(at(place), count * chunk_));
  }

 private:
  std::size_t chunk_;
  std::size_t bytes_;
  CUdeviceptr start_ = 0;
};

/// A range with a chunk of its own in each place.
class Filled {
 public:
  Filled(std::size_t chunk_bytes, std::size_t count)
      : chunks_(chunk_bytes, count), range_(chunk_bytes, count) {
    // The order of the chunks is not that of the addresses, as after a while of paging.
    std::uint64_t state = 1;
    std::vector<std::size_t> order(count);
    for (std::size_t i = 0; i < count; ++i) order[i] = i;
    for (std::size_t i = count; i > 1; --i) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      std::swap(order[i - 1], order[(state >> 33) % i]);
    }
    for (std::size_t i = 0; i < count; ++i) range_.map(i, chunks_[order[i]]);
    range_.allow(0, count);
  }
  ~Filled() { range_.unmap(0, chunks_.count()); }
  const Range& range() const { return range_; }

 private:
  Chunks chunks_;
  Range range_;
};

/// Runs a function again and again on an own thread, until it ends.
class Beside {
 public:
  explicit Beside(std::function<void()> work)
      : thread_([this, work = std::move(work)] {
          GPU_CHECK(cudaSetDevice(0));
          while (!ends_.load(std::memory_order_relaxed)) {
            work();
            turns_.fetch_add(1, std::memory_order_relaxed);
          }
        }) {}
  ~Beside() { stop(); }
  long stop() {
    ends_ = true;
    if (thread_.joinable()) thread_.join();
    return turns_;
  }

 private:
  std::atomic<bool> ends_{false};
  std::atomic<long> turns_{0};
  std::thread thread_;
};

/// Device time between two points of a stream, in seconds.
class Stopwatch {
 public:
  Stopwatch() {
    GPU_CHECK(cudaEventCreate(&start_));
    GPU_CHECK(cudaEventCreate(&end_));
  }
  ~Stopwatch() {
    cudaEventDestroy(start_);
    cudaEventDestroy(end_);
  }
  void start(cudaStream_t stream) { GPU_CHECK(cudaEventRecord(start_, stream)); }
  void end(cudaStream_t stream) { GPU_CHECK(cudaEventRecord(end_, stream)); }
  /// Waits for the end.
  double seconds() {
    GPU_CHECK(cudaEventSynchronize(end_));
    float milliseconds = 0;
    GPU_CHECK(cudaEventElapsedTime(&milliseconds, start_, end_));
    return milliseconds * 1e-3;
  }
  double stop(cudaStream_t stream) {
    end(stream);
    return seconds();
  }

 private:
  cudaEvent_t start_{}, end_{};
};

inline cudaStream_t new_stream() {
  cudaStream_t stream{};
  GPU_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}
