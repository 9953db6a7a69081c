// Virtual memory of the emulated driver, and its functions by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "chunked_range.h"
#include "streams_and_memory.h"
#include "support/emulated_cuda/runtime/emulation.h"

namespace spillway::emulated {
namespace {

class EmulatedDriver : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};
using EmulatedDriverDeathTest = EmulatedDriver;

std::vector<char> bytes_of(const ChunkedRange& range) {
  std::vector<char> host(range.bytes());
  EXPECT_EQ(cudaMemcpy(host.data(), range.data(), host.size(), cudaMemcpyDeviceToHost),
            cudaSuccess);
  return host;
}

TEST_F(EmulatedDriver, AChunkKeepsItsBytesWhereverItIsMapped) {
  ChunkedRange here;
  ChunkedRange there;
  here.map();
  here.give_access();
  EXPECT_EQ(bytes_of(here), std::vector<char>(here.bytes(), '\xFF')) << "a new chunk is poisoned";
  EXPECT_EQ(cudaMemset(here.data(), 5, here.bytes()), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  here.unmap();
  here.swap_chunks(there);
  there.map();
  there.give_access();
  EXPECT_EQ(bytes_of(there), std::vector<char>(there.bytes(), 5));
  there.unmap();
}

TEST_F(EmulatedDriver, ChunksAreMemoryOfTheDevice) {
  const std::size_t before = emu_cuda_used(0);
  {
    ChunkedRange range;
    EXPECT_EQ(emu_cuda_used(0), before + range.bytes()) << "mapped or not";
    range.map();
    EXPECT_EQ(emu_cuda_used(0), before + range.bytes());
    range.unmap();
  }
  EXPECT_EQ(emu_cuda_used(0), before);
}

TEST_F(EmulatedDriver, WhatDoesNotFitIsRefused) {
  ChunkedRange range;
  range.map();
  EXPECT_EQ(range.try_map(), CUDA_ERROR_INVALID_VALUE) << "mapped already";
  EXPECT_EQ(SPILLWAY_DRIVER(cuMemUnmap)(range.address(), range.bytes() / 2),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SPILLWAY_DRIVER(cuMemUnmap)(range.address(), range.bytes() * 2),
            CUDA_ERROR_INVALID_VALUE);
  range.unmap();
  EXPECT_EQ(SPILLWAY_DRIVER(cuMemUnmap)(range.address(), range.bytes()), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr address = 0;
  EXPECT_EQ(SPILLWAY_DRIVER(cuMemAddressReserve)(&address, range.bytes() + 1, 0, 0, 0),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(EmulatedDriver, AChunkLivesAsLongAsItIsMapped) {
  ChunkedRange range;
  range.map();
  range.give_access();
  EXPECT_EQ(cudaMemset(range.data(), 5, range.bytes()), cudaSuccess);
  CUmemGenericAllocationHandle same = 0;
  EXPECT_EQ(SPILLWAY_DRIVER(cuMemRetainAllocationHandle)(&same, range.data()), CUDA_SUCCESS);
  EXPECT_EQ(SPILLWAY_DRIVER(cuMemRelease)(same), CUDA_SUCCESS);
  EXPECT_EQ(bytes_of(range), std::vector<char>(range.bytes(), 5));
  range.unmap();
}

TEST_F(EmulatedDriver, HasVirtualMemory) {
  int supported = 0;
  EXPECT_EQ(SPILLWAY_DRIVER(cuDeviceGetAttribute)(
                &supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(supported, 1);
}

TEST_F(EmulatedDriverDeathTest, AFunctionThatIsNotEmulatedSaysSo) {
  EXPECT_DEATH(driver_function<void (*)()>("cuGreenCtxCreate")(),
               "the driver's function cuGreenCtxCreate is not emulated");
}

TEST_F(EmulatedDriver, WhatIsNoFunctionOfADriverIsNotFound) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("malloc", &function, 12000, cudaEnableDefault, &found),
            cudaErrorSymbolNotFound);
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(found, cudaDriverEntryPointSymbolNotFound);
}

TEST_F(EmulatedDriverDeathTest, AddressesAreNotFreedUnderAMapping) {
  const auto program = [] {
    ChunkedRange range;
    range.map();
    SPILLWAY_DRIVER(cuMemAddressFree)(range.address(), range.bytes());
  };
  EXPECT_DEATH(program(),
               "cuMemAddressFree of 0x[0-9a-f]+, where chunks are mapped; call cuMemUnmap before");
}

/// One chunk beneath two ranges of addresses.
class TwoAddresses {
 public:
  TwoAddresses() {
    one_.map();
    one_.give_access();
    other_.map_chunk_of(one_);
    other_.give_access();
  }
  ~TwoAddresses() {
    one_.unmap();
    other_.unmap();
  }
  ChunkedRange& one() { return one_; }
  ChunkedRange& other() { return other_; }

 private:
  ChunkedRange one_;
  ChunkedRange other_;
};

void fill(const ChunkedRange& range, cudaStream_t stream) {
  EXPECT_EQ(cudaMemsetAsync(range.data(), 5, range.bytes(), stream), cudaSuccess);
}

TEST_F(EmulatedDriver, AChunkIsTheSameMemoryAtEachOfItsAddresses) {
  TwoAddresses both;
  const FreeStream first;
  const FreeStream second;
  cudaEvent_t filled = nullptr;
  EXPECT_EQ(cudaEventCreateWithFlags(&filled, cudaEventDisableTiming), cudaSuccess);
  fill(both.one(), first);
  EXPECT_EQ(cudaEventRecord(filled, first), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(second, filled, 0), cudaSuccess);
  fill(both.other(), second);
  EXPECT_EQ(cudaStreamSynchronize(second), cudaSuccess);
  EXPECT_EQ(bytes_of(both.one()), std::vector<char>(both.one().bytes(), 5));
  EXPECT_EQ(cudaEventDestroy(filled), cudaSuccess);
}

TEST_F(EmulatedDriverDeathTest, AMissingWaitIsNamedWhateverAddressesTheMemoryIsUsedBy) {
  const auto program = [] {
    TwoAddresses both;
    const FreeStream first;
    const FreeStream second;
    fill(both.one(), first);
    fill(both.other(), second);
  };
  EXPECT_DEATH(
      program(),
      "not ordered: 'fill' on .* writes memory at (0x[0-9a-f]+) that 'fill' on .* wrote at "
      "0x[0-9a-f]+, and nothing makes the second wait");
}

TEST_F(EmulatedDriver, AddressesMayGoWhileTheMemoryIsUsedByOthers) {
  TwoAddresses both;
  const FreeStream stream;
  Gate gate(stream);
  fill(both.one(), stream);
  both.other().unmap();
  gate.open();
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  both.other().map_chunk_of(both.one());
}

TEST_F(EmulatedDriverDeathTest, AddressesMayNotGoWhileTheMemoryIsUsedByThem) {
  const auto program = [] {
    TwoAddresses both;
    const FreeStream stream;
    fill(both.one(), stream);
    both.one().unmap();
  };
  EXPECT_DEATH(program(), "not ordered: 'cuMemUnmap' on the host takes away memory at");
}

/// A stream of the second device, and memory of the first one that is no chunk.
class OtherDevice {
 public:
  OtherDevice() {
    EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&memory_, kBytes), cudaSuccess);
  }
  static constexpr std::size_t kBytes = 4096;
  cudaStream_t stream() const { return stream_; }
  void* memory() const { return memory_; }
  void use(const void* address) const {
    emu_cuda_begin(stream_);
    emu_cuda_use(stream_, address, kBytes, 1, "a kernel");
  }

 private:
  cudaStream_t stream_ = nullptr;
  void* memory_ = nullptr;
};

TEST_F(EmulatedDriverDeathTest, AChunkIsOpenToTheDevicesThatWereNamed) {
  const auto with_range = [](const auto& program) {
    const OtherDevice other;
    ChunkedRange range;
    range.map();
    range.give_access();
    program(other, range);
    range.unmap();
    std::exit(testing::Test::HasFailure() ? 1 : 0);
  };
  constexpr const char* kRefusal =
      "of device 1 uses memory at 0x[0-9a-f]+, where cuMemSetAccess has given access to other "
      "devices alone";
  EXPECT_DEATH(
      with_range([](const OtherDevice& other, ChunkedRange& range) { other.use(range.data()); }),
      kRefusal);
  EXPECT_DEATH(with_range([](const OtherDevice& other, ChunkedRange& range) {
                 cudaMemcpyAsync(range.data(), other.memory(), OtherDevice::kBytes,
                                 cudaMemcpyDeviceToDevice, other.stream());
               }),
               kRefusal);
  EXPECT_EXIT(with_range([](const OtherDevice& other, ChunkedRange& range) {
                EXPECT_EQ(cudaMemcpyPeerAsync(range.data(), 0, other.memory(), 0,
                                              OtherDevice::kBytes, other.stream()),
                          cudaSuccess);
                EXPECT_EQ(cudaStreamSynchronize(other.stream()), cudaSuccess);
                range.give_access(1);
                other.use(range.data());
                EXPECT_EQ(cudaStreamSynchronize(other.stream()), cudaSuccess);
              }),
              testing::ExitedWithCode(0), "");
}

TEST_F(EmulatedDriverDeathTest, OtherMemoryIsOpenToPeersThatWereEnabled) {
  EXPECT_DEATH(
      {
        const OtherDevice other;
        other.use(other.memory());
      },
      "of device 1 uses memory at 0x[0-9a-f]+ of device 0, and cudaDeviceEnablePeerAccess was not "
      "called");
  const OtherDevice other;
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  other.use(other.memory());
}

TEST_F(EmulatedDriver, EndsByAFunctionAtExit) {
  const auto program = [] {
    std::atexit([] { std::_Exit(cudaMalloc(new void*, 1) == cudaErrorCudartUnloading ? 0 : 1); });
    const DeviceBytes memory(64);
    std::exit(1);
  };
  EXPECT_EXIT(program(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace spillway::emulated
