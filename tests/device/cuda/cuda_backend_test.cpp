// What the backend makes of machines that are not as they should be, and of what it owes the
// program that it lives in, on the emulated CUDA. Its settings are read once a process, so cases
// that change them are processes of their own.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>
#include <utility>

#include "functions.h"
#include "spillway/base/error.h"
#include "spillway/device/cuda/cuda_backend.h"
#include "spillway/device/host_slabs.h"
#include "support/emulated_cuda/runtime/emulation.h"
#include "support/golden_part.h"

namespace spillway::device {
namespace {

using testing::ElementsAre;

constexpr DeviceId kFirst{DeviceKind::kCuda, 0};
constexpr DeviceId kSecond{DeviceKind::kCuda, 1};

using Environment = std::vector<std::pair<const char*, const char*>>;

std::unique_ptr<Device> open_cuda(DeviceId id = kFirst) {
  return open_device(id, std::array{cuda_backend()});
}

class CudaBackend : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

/// Ends the process with 0 where `program` finds nothing wrong.
template <class Program>
[[noreturn]] void run_with(const Environment& environment, Program program) {
  for (const auto& [name, value] : environment) ::setenv(name, value, 1);
  program();
  std::_Exit(testing::Test::HasFailure() ? 1 : 0);
}

#define EXPECT_HOLDS_WITH(environment, program) \
  EXPECT_EXIT(run_with(environment, program), testing::ExitedWithCode(0), "")

/// Ends the process with the reason why there are no devices.
void tell_reason(const Environment& environment) {
  run_with(environment, [] {
    const BackendStatus status = cuda_backend().probe();
    EXPECT_TRUE(status.devices.empty());
    EXPECT_EQ(cuda_facts().reason, status.reason);
    EXPECT_THROW(open_cuda(), UnsupportedError);
    EXPECT_THROW(cuda_backend().open(kFirst), Error);
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
    std::fprintf(stderr, "%s\n", status.reason.c_str());
  });
}

#define EXPECT_REASON(environment, reason) \
  EXPECT_EXIT(tell_reason(environment), testing::ExitedWithCode(0), reason)

TEST_F(CudaBackend, SaysWhyThereIsNoDevice) {
  const std::string without_driver = why_no_driver(topology::discover_gpus());
  EXPECT_REASON((Environment{{"EMU_CUDA_DRIVER", "0"}}), without_driver.substr(0, 20));
  EXPECT_REASON((Environment{{"EMU_CUDA_DRIVER", "12.4"}}),
                "^the driver of NVIDIA serves CUDA up to 12.4, and CUDA 13.0 is needed: install");
  EXPECT_REASON((Environment{{"EMU_CUDA_DEVICES", "0"}}), "^the driver of NVIDIA sees no GPU");
  EXPECT_REASON((Environment{{"CUDA_VISIBLE_DEVICES", ""}}),
                "^CUDA_VISIBLE_DEVICES is empty, which hides all GPUs: unset it");
  EXPECT_REASON((Environment{{"CUDA_VISIBLE_DEVICES", "7"}}),
                "^CUDA_VISIBLE_DEVICES=7 names no GPU that is there: unset it");
}

TEST(WhyNoDriver, TellsAMachineWithoutAGpuFromAGpuWithoutADriver) {
  GoldenPart golden;
  golden.add(why_no_driver(std::vector<topology::Gpu>{}));
  golden.add(why_no_driver(std::vector<topology::Gpu>{{"NVIDIA 0x2330", "0000:3b:00.0", false}}));
  golden.add(why_no_driver(std::nullopt));
}

TEST_F(CudaBackend, TakesDevicesInTheOrderOfTheEnvironment) {
  EXPECT_HOLDS_WITH((Environment{{"EMU_CUDA_DEVICES", "3"}, {"CUDA_VISIBLE_DEVICES", "2,0"}}), [] {
    const CudaFacts facts = cuda_facts();
    ASSERT_EQ(facts.devices.size(), 2U);
    EXPECT_EQ(facts.devices[0].name, "Emulated GPU 2");
    EXPECT_EQ(facts.devices[0].bus_address, "0000:03:00.0");
    EXPECT_EQ(facts.devices[1].name, "Emulated GPU 0");
    EXPECT_THAT(facts.devices[1].direct_peers, ElementsAre(kFirst));
    EXPECT_EQ(open_cuda(kSecond)->id(), kSecond);
    EXPECT_THROW(open_cuda({DeviceKind::kCuda, 2}), UnsupportedError);
  });
}

TEST_F(CudaBackend, TellsFactsOfDevicesWithoutAContext) {
  EXPECT_HOLDS_WITH(Environment{}, [] {
    const CudaFacts facts = cuda_facts();
    EXPECT_EQ(facts.reason, "");
    EXPECT_EQ(facts.driver, "13.0");
    EXPECT_EQ(facts.runtime, "13.0");
    ASSERT_EQ(facts.devices.size(), 2U);
    EXPECT_EQ(facts.devices[0].compute_capability, "8.0");
    EXPECT_EQ(facts.devices[0].memory, 8_GiB);
    EXPECT_FALSE(facts.devices[0].is_mig_slice);
    EXPECT_TRUE(facts.devices[0].capabilities.virtual_memory);
    EXPECT_TRUE(facts.devices[0].capabilities.peer_copies);
    EXPECT_EQ(emu_cuda_calls("cudaInitDevice"), 0U);
    EXPECT_EQ(emu_cuda_calls("cuDevicePrimaryCtxRetain"), 0U);
  });
}

TEST_F(CudaBackend, KnowsASliceOfAGpuByItsName) {
  EXPECT_HOLDS_WITH((Environment{{"EMU_CUDA_NAME", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"}}), [] {
    const CudaFacts facts = cuda_facts();
    ASSERT_EQ(facts.devices.size(), 2U);
    EXPECT_EQ(facts.devices[0].name, "NVIDIA H100 80GB HBM3 MIG 1g.10gb");
    EXPECT_TRUE(facts.devices[0].is_mig_slice);
  });
}

/// A stream of the other device refuses events of this one, and can be waited for.
TEST_F(CudaBackend, AMomentWhoseEventIsRefusedComesOnceTheStreamHasDoneItsWork) {
  const auto device = open_cuda();
  const auto other = open_cuda(kSecond);
  const auto stream = other->make_queue("of the other");
  const auto queue = queue_over_stream(*device, stream_of(*stream));
  const auto waits_before = emu_cuda_calls("cudaStreamSynchronize");
  std::atomic<bool> is_told{false};
  std::atomic<bool> has_ended{false};
  stream->run([&] {
    while (emu_cuda_calls("cudaStreamSynchronize") == waits_before && !is_told)
      std::this_thread::yield();
    has_ended = true;
    return Outcome{};
  });
  const Event moment = queue->record();
  EXPECT_TRUE(moment.is_done());
  EXPECT_TRUE(has_ended);
  is_told = true;
  GoldenPart().add(moment.wait().error);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(CudaBackend, AMomentOfAStreamThatIsGoneIsNeverCalledPast) {
  const auto device = open_cuda();
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  const auto queue = queue_over_stream(*device, stream);
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  const Event moment = queue->record();
  EXPECT_FALSE(moment.is_done());
  EXPECT_EQ(moment.state()->obstacle(), "cuda:0 has refused an event");
  GoldenPart golden;
  golden.mask(std::regex("0x[0-9a-f]+"), "ADDRESS");
  golden.add(moment.wait().error);
}

TEST_F(CudaBackend, AMomentOfAGraphThatIsMadeIsNeverCalledPast) {
  const auto device = open_cuda();
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  const auto queue = queue_over_stream(*device, stream);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  const Event moment = queue->record();
  EXPECT_FALSE(moment.is_done());
  GoldenPart golden;
  golden.add(moment.state()->obstacle());
  EXPECT_EQ(failure_so_far(*queue), "");
  queue->wait(device->make_queue("other")->record());
  golden.add(failure_so_far(*queue));
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
  EXPECT_FALSE(moment.is_done());
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

std::string refusal_of(Device& device, Bytes size) {
  try {
    static_cast<void>(device.allocate(size));
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST_F(CudaBackend, SaysHowMuchMemoryThereIsWhereItRefusesSome) {
  EXPECT_HOLDS_WITH((Environment{{"EMU_CUDA_MEMORY", "16MiB"}}), [] {
    const auto device = open_cuda();
    EXPECT_EQ(device->memory().free, 16_MiB);
    EXPECT_EQ(refusal_of(*device, 32_MiB),
              "device cuda:0 has no 32.0 MiB of memory: it has 16.0 MiB");
    const DeviceMemory most = device->allocate(8_MiB);
    GoldenPart().add(refusal_of(*device, 10_MiB));
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << "LibTorch would take it for its own";
    EXPECT_EQ(refusal_of(*device, 2_MiB), "none");
  });
}

TEST_F(CudaBackend, CopiesByPageableSlabsWherePinningIsRefused) {
  EXPECT_HOLDS_WITH((Environment{{"EMU_CUDA_PINNED", "64KiB"}}), [] {
    const auto device = open_cuda();
    HostSlabs slabs(*device, {.slab_size = 64_KiB, .slab_count = 2, .pinning = Pinning::kPinned});
    EXPECT_EQ(slabs.pinning(), Pinning::kPageable);
    GoldenPart().add(slabs.why_pageable());
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
    const HostSlab from = *slabs.take();
    const HostSlab to = *slabs.take();
    const DeviceMemory memory = device->allocate(64_KiB);
    const auto queue = device->make_queue("test");
    from.span().data[4711] = std::byte{42};
    queue->copy(memory.span(), from.span());
    queue->copy(to.span(), memory.span());
    EXPECT_TRUE(queue->record().wait().succeeded());
    EXPECT_EQ(to.span().data[4711], std::byte{42});
  });
}

/// As seen from /sys/bus/pci/devices: a folder that stands in for that of a GPU.
constexpr const char* kWorkingFolder = "../../../../proc/self/cwd";

void go_where_a_gpu_is_near(const char* node, const char* nodes) {
  std::string folder = testing::TempDir() + "near-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  ASSERT_EQ(::chdir(folder.c_str()), 0);
  std::ofstream("numa_node") << node << '\n';
  std::filesystem::create_directories("sys/bus/pci");
  std::filesystem::create_directories("sys/devices/system/node");
  std::filesystem::create_symlink("sys/bus/pci", "subsystem");
  std::ofstream("sys/devices/system/node/online") << nodes << '\n';
  ASSERT_EQ(cuda_facts().devices.at(0).bus_address, kWorkingFolder);
}

using Policy = std::pair<int, unsigned long>;  // Its kind, and which nodes.

/// Pins slabs twice, for a GPU that is near `node` of those that there are. Gives the policy of
/// their pages.
Policy policy_of_slabs(const char* node, const char* online = "0-1") {
  go_where_a_gpu_is_near(node, online);
  const auto device = open_cuda();
  const HostSlabsOptions options{.slab_size = 64_KiB, .slab_count = 2, .pinning = Pinning::kPinned};
  HostSlabs slabs(*device, options);
  HostSlabs more(*device, options);
  EXPECT_EQ(slabs.pinning(), Pinning::kPinned);
  const HostSlab slab = *more.take();
  int mode = -1;
  std::array<unsigned long, 16> nodes{};
  EXPECT_EQ(::syscall(SYS_get_mempolicy, &mode, nodes.data(), 8 * sizeof nodes, slab.span().data,
                      MPOL_F_ADDR),
            0);
  std::filesystem::remove_all(std::filesystem::current_path());
  return {mode, nodes[0]};
}

const Environment kNearSomeNode{{"EMU_CUDA_BUS_ADDRESS", kWorkingFolder}};

/// Containers may not ask for policies. Empty: this process may.
std::string why_no_policies() {
  int mode = MPOL_DEFAULT;
  const std::size_t page = 4096;
  void* const memory =
      ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto refuses = [](long result) {
    return result != 0 && (errno == EPERM || errno == ENOSYS);
  };
  std::string refused;
  if (refuses(::syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, 0UL, 0UL)))
    refused = "get_mempolicy";
  else if (refuses(::syscall(SYS_set_mempolicy, mode, nullptr, 0UL)))
    refused = "set_mempolicy";
  else if (refuses(::syscall(SYS_mbind, memory, page, MPOL_DEFAULT, nullptr, 0UL, 0UL)))
    refused = "mbind";
  const int error = errno;
  ::munmap(memory, page);
  return refused.empty() ? "" : refused + ": " + std::strerror(error);
}

#define SKIP_WITHOUT_POLICIES() \
  if (const std::string reason = why_no_policies(); !reason.empty()) GTEST_SKIP() << reason

TEST_F(CudaBackend, PinsMemoryOfTheNodeThatIsNear) {
  SKIP_WITHOUT_POLICIES();
  EXPECT_HOLDS_WITH(kNearSomeNode, [] {
    EXPECT_EQ(policy_of_slabs("0"), Policy(MPOL_PREFERRED, 1UL));
    EXPECT_EQ(policy_of_slabs("-1"), Policy(MPOL_DEFAULT, 0UL)) << "of an unknown one";
    EXPECT_EQ(policy_of_slabs("0", "0"), Policy(MPOL_DEFAULT, 0UL)) << "of the only one";
  });
}

TEST_F(CudaBackend, LeavesMemoryWhereTheUserWantsIt) {
  SKIP_WITHOUT_POLICIES();
  EXPECT_HOLDS_WITH(kNearSomeNode, [] {
    const unsigned long first = 1;
    ASSERT_EQ(::syscall(SYS_set_mempolicy, MPOL_BIND, &first, 65UL), 0);
    EXPECT_EQ(policy_of_slabs("0"), Policy(MPOL_DEFAULT, 0UL))
        << "of their own: the thread's holds";
  });
}

TEST_F(CudaBackend, TellsOnceThatANodeIsRefused) {
  SKIP_WITHOUT_POLICIES();
  EXPECT_EXIT(run_with(kNearSomeNode,
                       [] {
                         testing::internal::CaptureStderr();
                         EXPECT_EQ(policy_of_slabs("900").first, MPOL_DEFAULT);
                         const std::string told = testing::internal::GetCapturedStderr();
                         EXPECT_EQ(told.find("memory pinned"), told.rfind("memory pinned"));
                         std::fprintf(stderr, "%s", told.c_str());
                       }),
              testing::ExitedWithCode(0),
              "memory pinned for cuda:0 lies on any NUMA node, where that of the GPU .900. is "
              "nearer: the kernel refuses to prefer it: Invalid argument");
}

TEST_F(CudaBackend, NamesADeviceThatIsLost) {
  EXPECT_HOLDS_WITH(Environment{}, [] {
    const auto device = open_cuda();
    const auto other = open_cuda(kSecond);
    const DeviceMemory memory = device->allocate(64_B);
    auto queue = device->make_queue("test");
    std::promise<void> opened;
    queue->run([gate = opened.get_future().share()] {
      gate.wait();
      return Outcome{};
    });
    bool has_run = false;
    queue->run([&has_run] {
      has_run = true;
      return Outcome{};
    });
    const Event before = queue->record();
    emu_cuda_lose(0, cudaErrorIllegalAddress);
    const char* const text =
        "device cuda:0 is lost to this process: an illegal memory access was encountered "
        "(cudaErrorIllegalAddress); start the program anew";
    EXPECT_TRUE(before.is_done()) << "who polls would poll for ever";
    EXPECT_EQ(before.wait().error, text);
    opened.set_value();
    std::vector<std::byte> bytes(64);
    queue->copy(memory.span(), host_span_of_all(bytes));
    queue->run([] { return Outcome{"a later failure"}; });
    EXPECT_EQ(queue->record().wait().error, std::string("a copy on cuda:0: ") + text);
    queue->wait(before);
    EXPECT_FALSE(is_captured(*queue)) << "its moments would never come";
    EXPECT_FALSE(is_stream_captured(stream_of(*queue)));
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
    EXPECT_THROW(elapsed(queue->record(Timing::kKept), queue->record(Timing::kKept)), Error);
    queue = nullptr;
    EXPECT_FALSE(has_run);
    GoldenPart().add(refusal_of(*device, 64_B));
    const auto alive = other->make_queue("other");
    EXPECT_TRUE(alive->record().wait().succeeded());
  });
}

/// Of each error after which "the process must be terminated and relaunched", and no other.
std::vector<int> fatal_errors_of_header() {
  std::vector<int> found;
  std::ifstream header(SPILLWAY_CUDA_INCLUDE "/driver_types.h");
  std::string comment;
  for (std::string line; std::getline(header, line);) {
    const auto text = line.find_first_not_of(" */");
    const auto value = line.find('=');
    if (line.find("/**") != std::string::npos) comment.clear();
    if (line.find("cudaError") != text || value == std::string::npos) {
      if (text != std::string::npos) comment += line.substr(text) + ' ';
      continue;
    }
    if (comment.find("must be terminated and relaunched") != std::string::npos)
      found.push_back(std::stoi(line.substr(value + 1)));
    comment.clear();
  }
  return found;
}

TEST_F(CudaBackend, KnowsAllErrorsThatItsHeaderCallsTheEndOfTheProcess) {
  const std::vector<int> errors = fatal_errors_of_header();
  EXPECT_THAT(errors, testing::IsSupersetOf({int{cudaErrorIllegalAddress}, int{cudaErrorAssert},
                                             int{cudaErrorExternalDevice}}));
  for (const int error : errors)
    EXPECT_TRUE(CudaFunctions::is_of_a_lost_device(static_cast<cudaError_t>(error))) << error;
}

TEST_F(CudaBackend, LeavesTheDeviceOfTheThreadAsItWas) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  const auto device = open_cuda();
  const auto queue = device->make_queue("test");
  const DeviceMemory memory = device->allocate(64_B);
  std::vector<std::byte> bytes(64);
  queue->copy(memory.span(), host_span_of_all(bytes));
  EXPECT_TRUE(queue->record().wait().succeeded());
  int current = -1;
  EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 1);
}

TEST_F(CudaBackend, LeavesNoErrorBehindForTheThread) {
  const auto device = open_cuda();
  const auto queue = device->make_queue("test");
  std::promise<void> opened;
  queue->run([gate = opened.get_future().share()] {
    gate.wait();
    return Outcome{};
  });
  const Event behind = queue->record();
  EXPECT_FALSE(behind.is_done());
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  opened.set_value();
  std::vector<std::byte> bytes(4096);
  EXPECT_EQ(device->pin_host(host_span_of_all(bytes)), "");
  GoldenPart().add(device->pin_host(host_span_of_all(bytes)));
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  device->unpin_host(host_span_of_all(bytes));
  device->unpin_host(host_span_of_all(bytes));
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(CudaBackend, UsesEventsAgain) {
  EXPECT_HOLDS_WITH(Environment{}, [] {
    const auto device = open_cuda();
    const auto queue = device->make_queue("test");
    const auto later = device->make_queue("later");
    for (int i = 0; i < 100; ++i) {
      later->wait(queue->record());
      EXPECT_TRUE(later->record().wait().succeeded());
    }
    EXPECT_LE(emu_cuda_calls("cudaEventCreateWithFlags"), 2U);
    EXPECT_EQ(emu_cuda_calls("cudaEventRecord"), 200U);
  });
}

TEST_F(CudaBackend, AMissingWaitBetweenQueuesIsNamed) {
  const auto break_the_rule = [] {
    const auto device = open_cuda();
    const auto in = device->make_queue("in");
    const auto out = device->make_queue("out");
    const DeviceMemory memory = device->allocate(64_B);
    std::vector<std::byte> bytes(64);
    in->copy(memory.span(), host_span_of_all(bytes));
    out->copy(host_span_of_all(bytes), memory.span());
  };
  EXPECT_DEATH(break_the_rule(), "not ordered.*copy, device to host");
}

}  // namespace
}  // namespace spillway::device
