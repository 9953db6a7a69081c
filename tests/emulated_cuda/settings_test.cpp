// What the environment says to the emulated CUDA. It is read once a process, so each case is a
// process of its own.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "increment_kernel.h"
#include "streams_and_memory.h"

namespace spillway::emulated {
namespace {

using Environment = std::vector<std::pair<const char*, const char*>>;

constexpr std::size_t kMiB = 1 << 20;

class EmulatedSettings : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// Ends the process with 0 where `program` finds nothing wrong.
template <class Program>
[[noreturn]] void run_with(const Environment& environment, Program program) {
  for (const auto& [name, value] : environment) setenv(name, value, 1);
  program();
  std::_Exit(testing::Test::HasFailure() ? 1 : 0);
}

#define EXPECT_HOLDS_WITH(environment, program) \
  EXPECT_EXIT(run_with(environment, program), testing::ExitedWithCode(0), "")

std::string name_of(int device) {
  cudaDeviceProp all{};
  EXPECT_EQ(cudaGetDeviceProperties(&all, device), cudaSuccess);
  return all.name;
}

int device_count() {
  int count = -1;
  cudaGetDeviceCount(&count);
  return count;
}

TEST_F(EmulatedSettings, MemoryEnds) {
  EXPECT_HOLDS_WITH((Environment{{"EMU_CUDA_MEMORY", "8MiB"}}), [] {
    void* memory = nullptr;
    {
      const DeviceBytes most(6 * kMiB);
      EXPECT_EQ(cudaMalloc(&memory, 4 * kMiB), cudaErrorMemoryAllocation);
      EXPECT_EQ(memory, nullptr);
      EXPECT_STREQ(
          cudaGetErrorString(cudaGetLastError()),
          "out of memory: 4194304 bytes are wanted of device 0, which has 2097152 of 8388608 left");
    }
    const DeviceBytes now_it_fits(8 * kMiB);
  });
}

TEST_F(EmulatedSettings, MemoryFreedInAStreamComesBackWhenItIsNeeded) {
  EXPECT_HOLDS_WITH((Environment{{"EMU_CUDA_MEMORY", "8MiB"}, {"EMU_CUDA_DELAY_US", "2000"}}), [] {
    for (int i = 0; i < 10; ++i) {
      void* memory = nullptr;
      EXPECT_EQ(cudaMallocAsync(&memory, 6 * kMiB, nullptr), cudaSuccess);
      EXPECT_EQ(cudaFreeAsync(memory, nullptr), cudaSuccess);
    }
  });
}

TEST_F(EmulatedSettings, PinnedMemoryEnds) {
  EXPECT_HOLDS_WITH((Environment{{"EMU_CUDA_PINNED", "1MiB"}}), [] {
    void* memory = nullptr;
    {
      const PinnedBytes most(kMiB);
      EXPECT_EQ(cudaHostAlloc(&memory, 1, 0), cudaErrorMemoryAllocation);
      EXPECT_STREQ(cudaGetErrorString(cudaGetLastError()),
                   "out of memory: 1 bytes of pinned memory are wanted, of which 1048576 are in "
                   "use and 1048576 may be");
    }
    const PinnedBytes now_it_fits(kMiB);
  });
}

TEST_F(EmulatedSettings, VisibleDevicesAreChosenAndOrdered) {
  EXPECT_HOLDS_WITH((Environment{{"EMU_CUDA_DEVICES", "3"}, {"CUDA_VISIBLE_DEVICES", "2,0"}}), [] {
    EXPECT_EQ(device_count(), 2);
    EXPECT_EQ(name_of(0), "Emulated GPU 2");
    EXPECT_EQ(name_of(1), "Emulated GPU 0");
  });
  EXPECT_HOLDS_WITH((Environment{{"EMU_CUDA_DEVICES", "3"}, {"CUDA_VISIBLE_DEVICES", "1,7,0"}}),
                    [] { EXPECT_EQ(device_count(), 1); });
}

TEST_F(EmulatedSettings, WithoutADeviceAllIsRefused) {
  EXPECT_HOLDS_WITH((Environment{{"CUDA_VISIBLE_DEVICES", ""}}), [] {
    int count = -1;
    void* memory = nullptr;
    EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    EXPECT_EQ(count, 0);
    EXPECT_EQ(cudaMalloc(&memory, 1), cudaErrorNoDevice);
    EXPECT_EQ(cudaHostAlloc(&memory, 1, 0), cudaErrorNoDevice);
    EXPECT_EQ(cudaSetDevice(0), cudaErrorNoDevice);
  });
}

TEST_F(EmulatedSettings, TheDriverIsASetting) {
  const auto refused = [] {
    int count = -1;
    int current = -1;
    EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    EXPECT_EQ(count, 0);
    EXPECT_EQ(cudaGetDevice(&current), cudaErrorInsufficientDriver);
    int version = -1;
    EXPECT_EQ(cudaDriverGetVersion(&version), cudaSuccess);
    EXPECT_EQ(std::to_string(version), std::getenv("WANTED"));
  };
  EXPECT_HOLDS_WITH((Environment{{"EMU_CUDA_DRIVER", "0"}, {"WANTED", "0"}}), refused);
  EXPECT_HOLDS_WITH((Environment{{"EMU_CUDA_DRIVER", "12.4"}, {"WANTED", "12040"}}), refused);
}

TEST_F(EmulatedSettings, TheCapabilityIsASetting) {
  EXPECT_HOLDS_WITH((Environment{{"EMU_CUDA_CC", "9.0"}}), [] {
    int major = 0;
    EXPECT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
    EXPECT_EQ(major, 9);
  });
}

TEST_F(EmulatedSettings, WithoutTheCheckNothingIsNamed) {
  EXPECT_HOLDS_WITH((Environment{{"EMU_CUDA_CHECK", "0"}}), [] {
    const FreeStream first;
    const FreeStream second;
    const DeviceBytes device(kMiB);
    for (cudaStream_t stream : {first.operator cudaStream_t(), second.operator cudaStream_t()}) {
      EXPECT_EQ(cudaMemsetAsync(device.data(), 0, kMiB, stream), cudaSuccess);
    }
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  });
}

TEST_F(EmulatedSettings, AValueThatCannotBeReadEndsTheProcess) {
  const auto count = [] { device_count(); };
  EXPECT_DEATH(
      run_with({{"EMU_CUDA_MEMORY", "8 GB"}}, count),
      "EMU_CUDA_MEMORY=8 GB cannot be read; it takes a whole number, or one with KiB, MiB or GiB");
  EXPECT_DEATH(run_with({{"EMU_CUDA_GRAIN", "5000"}}, count), "EMU_CUDA_GRAIN=5000 cannot be read");
  EXPECT_DEATH(run_with({{"EMU_CUDA_CC", "new"}}, count), "EMU_CUDA_CC=new cannot be read");
  EXPECT_DEATH(run_with({{"EMU_CUDA_DRIVER", "13"}}, count), "EMU_CUDA_DRIVER=13 cannot be read");
  EXPECT_DEATH(run_with({{"EMU_CUDA_CHECK", "2"}}, count),
               "EMU_CUDA_CHECK=2 cannot be read; it takes 0 or 1");
}

// Copies in, work and copies out on three streams, in a ring of buffers.
void run_pipeline() {
  constexpr std::int64_t kCount = 1 << 14;
  constexpr std::size_t kBytes = kCount * sizeof(float);
  const FreeStream in;
  const FreeStream work;
  const FreeStream out;
  const DeviceBytes device(2 * kBytes);
  const PinnedBytes source(kBytes);
  const PinnedBytes target(2 * kBytes);
  const auto order = [](cudaStream_t earlier, cudaStream_t later) {
    cudaEvent_t event = nullptr;
    EXPECT_EQ(cudaEventCreate(&event), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(event, earlier), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(later, event, 0), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  };
  for (int round = 0; round < 20; ++round) {
    auto* slot = reinterpret_cast<float*>(device.data()) + (round % 2) * kCount;
    auto* result = reinterpret_cast<float*>(target.data()) + (round % 2) * kCount;
    EXPECT_EQ(cudaStreamSynchronize(in), cudaSuccess);
    for (std::int64_t i = 0; i < kCount; ++i)
      reinterpret_cast<float*>(source.data())[i] = static_cast<float>(round);
    order(out, in);
    EXPECT_EQ(cudaMemcpyAsync(slot, source.data(), kBytes, cudaMemcpyHostToDevice, in),
              cudaSuccess);
    order(in, work);
    launch_increment(slot, kCount, work);
    order(work, out);
    EXPECT_EQ(cudaMemcpyAsync(result, slot, kBytes, cudaMemcpyDeviceToHost, out), cudaSuccess);
    if (round % 2 == 0) continue;
    EXPECT_EQ(cudaStreamSynchronize(out), cudaSuccess);
    for (std::int64_t i : {std::int64_t{0}, kCount / 2, kCount - 1}) {
      EXPECT_EQ(reinterpret_cast<float*>(target.data())[i], static_cast<float>(round));
      EXPECT_EQ(reinterpret_cast<float*>(target.data())[kCount + i], static_cast<float>(round + 1));
    }
  }
}

TEST_F(EmulatedSettings, DelaysOfAnySeedLeaveTheBitsOfACorrectProgram) {
  for (const char* seed : {"1", "2", "3", "4", "5"}) {
    EXPECT_HOLDS_WITH((Environment{{"EMU_CUDA_DELAY_US", "500"}, {"EMU_CUDA_SEED", seed}}),
                      run_pipeline);
  }
}

}  // namespace
}  // namespace spillway::emulated
