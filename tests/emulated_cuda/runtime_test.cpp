// Streams, events, copies, pinned memory and kernels of the emulated CUDA, without LibTorch.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "increment_kernel.h"
#include "streams_and_memory.h"
#include "support/emulated_cuda/runtime/emulation.h"
#include "support/golden_part.h"

namespace spillway::emulated {
namespace {

constexpr std::size_t kBytes = 64 << 10;

class EmulatedRuntime : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    cudaGetLastError();
  }
};
using EmulatedRuntimeDeathTest = EmulatedRuntime;

TEST_F(EmulatedRuntimeDeathTest, TheDriversFilesAreOpenInOneTableOfDescriptors) {
  const auto program = [] {
    int device = -1;
    cudaGetDevice(&device);
    std::thread([&] {
      ASSERT_EQ(unshare(CLONE_FILES), 0);
      cudaGetDevice(&device);  // The same files, in a table of their own.
      for (int number = 0; number < 1024; ++number) close(number);
      std::thread([&] { cudaGetDevice(&device); }).join();
    }).join();
  };
  EXPECT_DEATH(program(),
               "cudaGetDevice is called by a thread with other descriptors than the first caller");
}

std::vector<char> on_host(const DeviceBytes& device) {
  std::vector<char> host(device.size());
  EXPECT_EQ(cudaMemcpy(host.data(), device.data(), host.size(), cudaMemcpyDeviceToHost),
            cudaSuccess);
  return host;
}

std::string last_text() { return cudaGetErrorString(cudaGetLastError()); }

TEST_F(EmulatedRuntime, NewDeviceMemoryIsFilledWithOnes) {
  const DeviceBytes device(kBytes);
  EXPECT_EQ(on_host(device), std::vector<char>(kBytes, '\xFF'));
}

TEST_F(EmulatedRuntime, AnAddressIsNeverHandedOutTwice) {
  std::vector<void*> seen;
  for (int i = 0; i < 20; ++i) {
    void* memory = nullptr;
    ASSERT_EQ(cudaMalloc(&memory, kBytes), cudaSuccess);
    EXPECT_THAT(seen, testing::Not(testing::Contains(memory)));
    seen.push_back(memory);
    ASSERT_EQ(cudaFree(memory), cudaSuccess);
  }
  EXPECT_EQ(cudaFree(seen.back()), cudaErrorInvalidValue);
  GoldenPart golden;
  golden.mask(std::regex("0x[0-9a-f]+"), "ADDRESS");
  golden.add(last_text());
}

TEST_F(EmulatedRuntime, BytesInUseAreCounted) {
  const std::size_t before = emu_cuda_used(0);
  {
    const DeviceBytes device(kBytes);
    EXPECT_GT(emu_cuda_used(0), before);
    std::size_t left = 0;
    std::size_t total = 0;
    EXPECT_EQ(cudaMemGetInfo(&left, &total), cudaSuccess);
    EXPECT_EQ(total - left, emu_cuda_used(0));
  }
  EXPECT_EQ(emu_cuda_used(0), before);
}

TEST_F(EmulatedRuntime, WorkOfAStreamRunsInItsOrderAndBehindTheCall) {
  const FreeStream stream;
  const DeviceBytes device(kBytes);
  Gate gate(stream);
  EXPECT_EQ(cudaMemsetAsync(device.data(), 0, kBytes, stream), cudaSuccess);
  launch_increment(reinterpret_cast<float*>(device.data()), kBytes / sizeof(float), stream);
  launch_increment(reinterpret_cast<float*>(device.data()), kBytes / sizeof(float), stream);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(device.data()[0], '\xFF');
  gate.open();
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  EXPECT_EQ(reinterpret_cast<const float*>(on_host(device).data())[kBytes / sizeof(float) - 1], 2);
}

TEST_F(EmulatedRuntime, PageableMemoryIsReadBeforeTheCallReturns) {
  const FreeStream stream;
  const DeviceBytes device(kBytes);
  std::vector<char> host(kBytes, 1);
  Gate gate(stream);
  EXPECT_EQ(cudaMemcpyAsync(device.data(), host.data(), kBytes, cudaMemcpyHostToDevice, stream),
            cudaSuccess);
  host.assign(kBytes, 2);
  gate.open();
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(on_host(device), std::vector<char>(kBytes, 1));
}

// Source and target overlap by half, so that only the later half first gives the bytes of the
// source.
TEST_F(EmulatedRuntime, CopiesMoveTheLaterHalfFirst) {
  const FreeStream stream;
  const DeviceBytes device(3 * kBytes);
  std::vector<char> host(3 * kBytes, 0);
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<char>(i / kBytes);
  EXPECT_EQ(cudaMemcpy(device.data(), host.data(), host.size(), cudaMemcpyHostToDevice),
            cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(device.data() + kBytes, device.data(), 2 * kBytes,
                            cudaMemcpyDeviceToDevice, stream),
            cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  const std::vector<char> moved = on_host(device);
  EXPECT_EQ(moved[kBytes], 0);
  EXPECT_EQ(moved[2 * kBytes], 1);
}

TEST_F(EmulatedRuntime, AnEventIsDoneWhenAllBeforeItIs) {
  const FreeStream stream;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess) << "never recorded";
  Gate gate(stream);
  EXPECT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  gate.open();
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
}

TEST_F(EmulatedRuntime, EventsWithoutTimingHaveNoTimes) {
  cudaEvent_t timed = nullptr;
  cudaEvent_t untimed = nullptr;
  ASSERT_EQ(cudaEventCreate(&timed), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming), cudaSuccess);
  for (cudaEvent_t event : {timed, untimed})
    EXPECT_EQ(cudaEventRecord(event, nullptr), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, timed, timed), cudaSuccess);
  EXPECT_EQ(milliseconds, 0);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, timed, untimed), cudaErrorInvalidResourceHandle);
  for (cudaEvent_t event : {timed, untimed}) EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(EmulatedRuntime, DestroyedStreamsAreRefused) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  GoldenPart golden;
  golden.mask(std::regex("0x[0-9a-f]+"), "ADDRESS");
  golden.add(last_text());
}

TEST_F(EmulatedRuntime, ADestroyedStreamStillDoesItsWork) {
  std::promise<void> done;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  Gate gate(stream);
  EXPECT_EQ(cudaLaunchHostFunc(
                stream, [](void* it) { static_cast<std::promise<void>*>(it)->set_value(); }, &done),
            cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  gate.open();
  done.get_future().wait();
}

TEST_F(EmulatedRuntime, TheWorkOfADestroyedStreamIsWorkOfTheDevice) {
  const DeviceBytes device(kBytes);
  const PinnedBytes pinned(kBytes);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(device.data(), 3, kBytes, stream), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(pinned.data(), device.data(), kBytes, cudaMemcpyDeviceToHost, stream),
            cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(pinned.data()[kBytes / 2], 3);
}

TEST_F(EmulatedRuntime, BlockingStreamsAndTheDefaultStreamWaitForEachOther) {
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  const DeviceBytes device(kBytes);
  for (int round = 0; round < 10; ++round) {
    EXPECT_EQ(cudaMemsetAsync(device.data(), 0, kBytes, nullptr), cudaSuccess);
    launch_increment(reinterpret_cast<float*>(device.data()), kBytes / sizeof(float), blocking);
    launch_increment(reinterpret_cast<float*>(device.data()), kBytes / sizeof(float), nullptr);
    EXPECT_EQ(reinterpret_cast<const float*>(on_host(device).data())[0], 2);
  }
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

TEST_F(EmulatedRuntimeDeathTest, OtherStreamsDoNotWaitForTheDefaultStream) {
  const auto program = [] {
    const FreeStream stream;
    const DeviceBytes device(kBytes);
    EXPECT_EQ(cudaMemsetAsync(device.data(), 0, kBytes, nullptr), cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(device.data(), 0, kBytes, stream), cudaSuccess);
  };
  EXPECT_DEATH(
      program(),
      "not ordered: 'fill' on stream 0 of device 0 writes .* on the default stream of device 0");
}

TEST_F(EmulatedRuntime, AHostFunctionTellsTheHostWhatIsDone) {
  const FreeStream stream;
  const DeviceBytes device(kBytes);
  const PinnedBytes pinned(kBytes);
  EXPECT_EQ(cudaMemsetAsync(device.data(), 3, kBytes, stream), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(pinned.data(), device.data(), kBytes, cudaMemcpyDeviceToHost, stream),
            cudaSuccess);
  std::promise<void> copied;
  EXPECT_EQ(
      cudaLaunchHostFunc(
          stream, [](void* it) { static_cast<std::promise<void>*>(it)->set_value(); }, &copied),
      cudaSuccess);
  copied.get_future().wait();
  EXPECT_EQ(pinned.data()[kBytes / 2], 3);
}

TEST_F(EmulatedRuntimeDeathTest, AHostFunctionMayNotCallCuda) {
  const auto submit = [](auto&& give) {
    const FreeStream stream;
    give(cudaStream_t(stream));
    cudaStreamSynchronize(stream);
  };
  EXPECT_DEATH(submit([](cudaStream_t stream) {
                 cudaLaunchHostFunc(
                     stream, [](void*) { cudaStreamQuery(nullptr); }, nullptr);
               }),
               "cudaStreamQuery is called by a function of the host in a stream, which CUDA "
               "forbids");
  EXPECT_DEATH(submit([](cudaStream_t stream) {
                 const auto callback = [](cudaStream_t, cudaError_t, void*) { cudaGetLastError(); };
                 cudaStreamAddCallback(stream, callback, nullptr, 0);
               }),
               "cudaGetLastError is called by a function of the host in a stream");
}

// What stands in the same page as the end of a copy may be somebody else's.
TEST_F(EmulatedRuntime, OnlyWholePagesOfPinnedMemoryAreProtected) {
  const FreeStream stream;
  const DeviceBytes device(kBytes);
  const PinnedBytes pinned(kBytes);
  Gate gate(stream);
  EXPECT_EQ(cudaMemcpyAsync(device.data(), pinned.data(), 100, cudaMemcpyHostToDevice, stream),
            cudaSuccess);
  EXPECT_EQ(
      cudaMemcpyAsync(device.data(), pinned.data() + 8192, 5000, cudaMemcpyHostToDevice, stream),
      cudaSuccess);
  pinned.data()[100] = 1;
  pinned.data()[8192 + 5000] = 1;
  gate.open();
}

TEST_F(EmulatedRuntime, TheHostMayReadWhatADeviceReads) {
  const FreeStream stream;
  const DeviceBytes device(kBytes);
  const PinnedBytes pinned(kBytes);
  std::memset(pinned.data(), 5, kBytes);
  Gate gate(stream);
  EXPECT_EQ(cudaMemcpyAsync(device.data(), pinned.data(), kBytes, cudaMemcpyHostToDevice, stream),
            cudaSuccess);
  EXPECT_EQ(pinned.data()[kBytes / 2], 5);
  gate.open();
}

// The copy back writes past the protection that the copies before have put on it.
TEST_F(EmulatedRuntime, CopiesOfOneStreamUseAPinnedBufferOneAfterTheOther) {
  const FreeStream stream;
  const DeviceBytes device(2 * kBytes);
  const PinnedBytes pinned(kBytes);
  std::memset(pinned.data(), 5, kBytes);
  EXPECT_EQ(cudaMemcpyAsync(device.data(), pinned.data(), kBytes, cudaMemcpyHostToDevice, stream),
            cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(device.data() + kBytes, 7, kBytes, stream), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(pinned.data(), device.data() + kBytes, kBytes, cudaMemcpyDeviceToHost,
                            stream),
            cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(device.data(), pinned.data(), kBytes, cudaMemcpyHostToDevice, stream),
            cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(on_host(device), std::vector<char>(2 * kBytes, 7));
  pinned.data()[0] = 1;
}

class RegisteredMemory : public EmulatedRuntime, public testing::WithParamInterface<int> {
 protected:
  void* map() {
    return mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, GetParam() | MAP_ANONYMOUS, -1, 0);
  }

  // Copies out into it, and reads it without waiting.
  void read_early() {
    const FreeStream stream;
    const DeviceBytes device(kBytes);
    char* memory = static_cast<char*>(map());
    EXPECT_EQ(cudaHostRegister(memory, kBytes, 0), cudaSuccess);
    Gate gate(stream);
    EXPECT_EQ(cudaMemcpyAsync(memory, device.data(), kBytes, cudaMemcpyDeviceToHost, stream),
              cudaSuccess);
    EXPECT_EQ(memory[kBytes / 2], '\xFF');
    gate.open();
  }
};

TEST_P(RegisteredMemory, IsPinnedUntilItIsUnregistered) {
  const FreeStream stream;
  const DeviceBytes device(kBytes);
  char* memory = static_cast<char*>(map());
  ASSERT_EQ(cudaHostRegister(memory, kBytes, 0), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(memory + 4096, 4096, 0), cudaErrorHostMemoryAlreadyRegistered);
  cudaPointerAttributes what{};
  EXPECT_EQ(cudaPointerGetAttributes(&what, memory + 5), cudaSuccess);
  EXPECT_EQ(what.type, cudaMemoryTypeHost);
  EXPECT_EQ(cudaMemsetAsync(device.data(), 9, kBytes, stream), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(memory, device.data(), kBytes, cudaMemcpyDeviceToHost, stream),
            cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(memory), cudaSuccess) << "waits for the copy";
  EXPECT_EQ(std::string(memory, kBytes), std::string(kBytes, 9));
  EXPECT_EQ(cudaHostUnregister(memory), cudaErrorHostMemoryNotRegistered);
  EXPECT_EQ(munmap(memory, kBytes), 0);
}

TEST_P(RegisteredMemory, IsProtectedWhileADeviceUsesIt) {
  EXPECT_DEATH(read_early(),
               "the host touches pinned memory .* that 'copy, device to host' writes");
}

INSTANTIATE_TEST_SUITE_P(EmulatedCuda, RegisteredMemory, testing::Values(MAP_PRIVATE, MAP_SHARED),
                         [](const auto& one) {
                           return one.param == MAP_SHARED ? "Shared" : "Private";
                         });

TEST_F(EmulatedRuntime, TwoDevicesHaveMemoryOfTheirOwn) {
  const DeviceBytes first(kBytes);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  const std::size_t before = emu_cuda_used(0);
  const DeviceBytes second(kBytes);
  EXPECT_EQ(emu_cuda_used(0), before);
  cudaPointerAttributes what{};
  EXPECT_EQ(cudaPointerGetAttributes(&what, second.data()), cudaSuccess);
  EXPECT_EQ(what.device, 1);
  const FreeStream stream;
  EXPECT_EQ(cudaMemsetAsync(second.data(), 4, kBytes, stream), cudaSuccess);
  EXPECT_EQ(cudaMemcpyPeerAsync(first.data(), 0, second.data(), 1, kBytes, stream), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(on_host(first), std::vector<char>(kBytes, 4));
}

TEST_F(EmulatedRuntime, AnEventIsRecordedInStreamsOfItsDevice) {
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  const FreeStream stream;
  EXPECT_EQ(cudaEventRecord(event, stream), cudaErrorInvalidResourceHandle);
  GoldenPart().add(last_text());
  EXPECT_EQ(cudaStreamWaitEvent(stream, event, 0), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(EmulatedRuntimeDeathTest, WorkOfTwoDevicesNeedsAnEvent) {
  const auto program = [] {
    const DeviceBytes first(kBytes);
    const FreeStream of_first;
    EXPECT_EQ(cudaMemsetAsync(first.data(), 0, kBytes, of_first), cudaSuccess);
    EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
    const DeviceBytes second(kBytes);
    const FreeStream of_second;
    EXPECT_EQ(cudaMemcpyPeerAsync(second.data(), 1, first.data(), 0, kBytes, of_second),
              cudaSuccess);
  };
  EXPECT_DEATH(
      program(),
      "'copy, device to device' on stream 0 of device 1 reads .* 'fill' on stream 0 of device 0");
}

TEST_F(EmulatedRuntimeDeathTest, UseOfFreedMemoryIsNamed) {
  const auto submit = [](bool in_stream) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMallocAsync(&memory, kBytes, nullptr), cudaSuccess);
    EXPECT_EQ(in_stream ? cudaFreeAsync(memory, nullptr) : cudaFree(memory), cudaSuccess);
    EXPECT_EQ(cudaMemset(memory, 0, kBytes), cudaSuccess);
  };
  EXPECT_DEATH(submit(false),
               "'fill' uses device memory at 0x[0-9a-f]+, which was freed or never allocated");
  EXPECT_DEATH(
      submit(true),
      "'fill' uses device memory at 0x[0-9a-f]+, which (was freed|cudaFreeAsync has freed)");
}

TEST_F(EmulatedRuntimeDeathTest, TheHostThatTouchesFreedMemoryIsTold) {
  const auto program = [] {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, kBytes), cudaSuccess);
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
    EXPECT_EQ(*static_cast<volatile char*>(memory), 0);
  };
  EXPECT_DEATH(program(),
               "'a thread of the host' touches device memory at 0x[0-9a-f]+, which is freed");
}

TEST_F(EmulatedRuntimeDeathTest, WorkThatTouchesFreedMemoryIsNamed) {
  const auto program = [] {
    static void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, kBytes), cudaSuccess);
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
    emu_cuda_enqueue(
        nullptr, "aten::wild", [](void*) { *static_cast<volatile char*>(memory) = 0; }, nullptr);
    cudaDeviceSynchronize();
  };
  EXPECT_DEATH(program(), "'aten::wild' touches device memory at 0x[0-9a-f]+, which is freed");
}

TEST_F(EmulatedRuntimeDeathTest, ACopyBeyondTheEndIsNamed) {
  const auto program = [] {
    const DeviceBytes device(kBytes);
    std::vector<char> host(16 << 20);
    EXPECT_EQ(cudaMemcpy(device.data(), host.data(), host.size(), cudaMemcpyHostToDevice),
              cudaSuccess);
  };
  EXPECT_DEATH(
      program(),
      "'copy, host to device' uses device memory .*, 16777216 bytes of which 65536 are in");
}

TEST_F(EmulatedRuntime, AKernelThatNothingEmulatesIsRefusedByName) {
  EXPECT_EQ(launch_unknown(nullptr), cudaErrorLaunchFailure);
  EXPECT_EQ(last_text(), "unspecified launch failure: nothing emulates the kernel unknown()");
}

TEST_F(EmulatedRuntimeDeathTest, AStubSaysWhatItIs) {
  const auto program = [] {
    void* library = dlopen(SPILLWAY_EMULATED_NVIDIA "/libcublas.so.13", RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
    reinterpret_cast<void (*)()>(dlsym(library, "cublasCreate_v2"))();
  };
  EXPECT_DEATH(program(), "cublasCreate_v2 of libcublas.so.13 was called, which is not emulated");
}

TEST_F(EmulatedRuntimeDeathTest, AFunctionOfTheRuntimeThatIsNotEmulatedSaysSo) {
  const auto program = [] {
    void* runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
    ASSERT_NE(runtime, nullptr);
    reinterpret_cast<void (*)()>(dlsym(runtime, "cudaGraphDebugDotPrint"))();
  };
  EXPECT_DEATH(program(),
               "cudaGraphDebugDotPrint of libcudart.so.13 was called, which is not emulated");
}

TEST_F(EmulatedRuntime, CallsAreCounted) {
  const auto before = emu_cuda_calls("cudaDeviceSynchronize");
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(emu_cuda_calls("cudaDeviceSynchronize"), before + 1);
}

}  // namespace
}  // namespace spillway::emulated
