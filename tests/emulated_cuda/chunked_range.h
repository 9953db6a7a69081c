#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace spillway::emulated {

/// The driver's function of this name and type.
template <class Function>
Function driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  EXPECT_EQ(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found),
            cudaSuccess);
  return reinterpret_cast<Function>(function);
}
#define SPILLWAY_DRIVER(name) ::spillway::emulated::driver_function<decltype(&(name))>(#name)

/// Reserved addresses of device 0, and a chunk that is behind them or not.
class ChunkedRange {
 public:
  ChunkedRange() {
    CUmemAllocationProp which{};
    which.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    which.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    EXPECT_EQ(SPILLWAY_DRIVER(cuMemGetAllocationGranularity)(&bytes_, &which,
                                                             CU_MEM_ALLOC_GRANULARITY_MINIMUM),
              CUDA_SUCCESS);
    EXPECT_EQ(SPILLWAY_DRIVER(cuMemAddressReserve)(&address_, bytes_, 0, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(SPILLWAY_DRIVER(cuMemCreate)(&chunk_, bytes_, &which, 0), CUDA_SUCCESS);
  }
  ~ChunkedRange() {
    EXPECT_EQ(SPILLWAY_DRIVER(cuMemRelease)(chunk_), CUDA_SUCCESS);
    EXPECT_EQ(SPILLWAY_DRIVER(cuMemAddressFree)(address_, bytes_), CUDA_SUCCESS);
  }
  ChunkedRange(const ChunkedRange&) = delete;
  ChunkedRange& operator=(const ChunkedRange&) = delete;

  CUresult try_map() { return SPILLWAY_DRIVER(cuMemMap)(address_, bytes_, 0, chunk_, 0); }
  void map() { EXPECT_EQ(try_map(), CUDA_SUCCESS); }
  /// The other's chunk, which may lie beneath its addresses, too.
  void map_chunk_of(const ChunkedRange& other) {
    EXPECT_EQ(SPILLWAY_DRIVER(cuMemMap)(address_, bytes_, 0, other.chunk_, 0), CUDA_SUCCESS);
  }
  void give_access(int device = 0) {
    CUmemAccessDesc who{};
    who.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    who.location.id = device;
    who.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    EXPECT_EQ(SPILLWAY_DRIVER(cuMemSetAccess)(address_, bytes_, &who, 1), CUDA_SUCCESS);
  }
  void unmap() { EXPECT_EQ(SPILLWAY_DRIVER(cuMemUnmap)(address_, bytes_), CUDA_SUCCESS); }

  /// Each gets the other's chunk; none is mapped.
  void swap_chunks(ChunkedRange& other) { std::swap(chunk_, other.chunk_); }

  CUdeviceptr address() const { return address_; }
  float* data() const { return reinterpret_cast<float*>(address_); }
  std::size_t bytes() const { return bytes_; }
  std::int64_t count() const { return static_cast<std::int64_t>(bytes_ / sizeof(float)); }

 private:
  CUdeviceptr address_ = 0;
  CUmemGenericAllocationHandle chunk_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace spillway::emulated
