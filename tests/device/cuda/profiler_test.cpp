// What profilers see of the CUDA device, by a library that NVTX takes for one.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <array>
#include <cstdlib>

#include "nvtx_ranges.h"
#include "spillway/device/cuda/cuda_backend.h"
#include "spillway/device/cuda/virtual_memory.h"

namespace spillway::device {
namespace {

using testing::ElementsAre;

TEST(CudaProfiler, SeesCopiesAndMappingsWithTheirBytes) {
  const auto device = open_device({DeviceKind::kCuda, 0}, std::array{cuda_backend()});
  const auto queue = device->make_queue("copies");
  CudaVirtualMemory memory(*device);
  const Bytes size = memory.granularity();
  std::byte* const address = memory.reserve(size, size);
  const auto chunk = memory.make_chunk(size);
  memory.map(address, chunk, size);
  std::vector<std::byte> host(4096, std::byte{7});
  const DeviceSpan there{device->id(), address, Bytes(host.size())};
  queue->copy(there, host_span_of_all(host));
  queue->copy(host_span_of_all(host), there);
  ASSERT_TRUE(queue->record().wait().succeeded());
  memory.unmap(address, size);
  memory.drop_chunk(chunk);
  memory.give_back(address, size);

  void* const injected = ::dlopen(std::getenv("NVTX_INJECTION64_PATH"), RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(injected, nullptr) << "NVTX has not opened it";
  const auto take = reinterpret_cast<decltype(&spillway_take_nvtx_ranges)>(
      ::dlsym(injected, "spillway_take_nvtx_ranges"));
  ASSERT_NE(take, nullptr);
  std::vector<SpillwayNvtxRange> ranges;
  std::string domain;
  int open = -1;
  take(ranges, domain, open);
  EXPECT_EQ(domain, "Spillway");
  EXPECT_EQ(open, 0);
  EXPECT_THAT(ranges, ElementsAre(SpillwayNvtxRange{"map", size.count()},
                                  SpillwayNvtxRange{"copy to the device", host.size()},
                                  SpillwayNvtxRange{"copy to the host", host.size()},
                                  SpillwayNvtxRange{"unmap", size.count()}));
  ::dlclose(injected);
}

}  // namespace
}  // namespace spillway::device
