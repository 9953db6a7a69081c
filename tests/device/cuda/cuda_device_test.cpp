// The suites on the GPU that this process finds: a real one, or the emulated one where its runtime
// comes first in LD_LIBRARY_PATH.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>

#include "../queue_conformance.h"
#include "spillway/device/cpu.h"
#include "spillway/device/cuda/cuda_backend.h"

namespace spillway::device {
namespace {

/// The device of this index; none, with the reason, where there are not so many.
struct CudaFixture {
  std::unique_ptr<Device> open(std::uint16_t index = 0) {
    const BackendStatus status = cuda_backend().probe();
    why = status.reason;
    if (!why.empty()) return nullptr;
    why = "this machine has one GPU";
    if (index >= status.devices.size()) return nullptr;
    return open_device({DeviceKind::kCuda, index}, std::array{cuda_backend()});
  }
  std::string why;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, DeviceConformance, CudaFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, QueueConformance, CudaFixture);

using CudaDevice = DeviceCase<CudaFixture>;

TEST_F(CudaDevice, LetsQueuesOfTheHostAndItsOwnWaitForOneAnother) {
  expect_to_wait_for_queues_of_the_host(*device_);
}

TEST_F(CudaDevice, MovesManyBlocksThroughPinnedSlabsOnTwoQueues) {
  constexpr std::uint32_t kBlocks = 4;
  constexpr int kRounds = 12;
  HostSlabs slabs(*device_, {.slab_size = 64_KiB, .slab_count = 2, .pinning = Pinning::kPinned});
  const DeviceMemory memory = device_->allocate(slabs.slab_size() * kBlocks);
  const auto in = device_->make_queue("in");
  const auto out = device_->make_queue("out");
  const HostSlab source = *slabs.take();
  const HostSlab target = *slabs.take();
  Event came;
  Event left;
  for (int round = 0; round < kRounds; ++round) {
    const DeviceSpan block = memory.span().part(
        slabs.slab_size() * (static_cast<std::uint32_t>(round) % kBlocks), slabs.slab_size());
    EXPECT_TRUE(came.wait().succeeded());
    std::memset(source.span().data, round, source.span().size.count());
    in->wait(left);
    in->copy(block, source.span());
    came = in->record();
    out->wait(came);
    out->copy(target.span(), block);
    left = out->record();
    EXPECT_TRUE(left.wait().succeeded());
    EXPECT_EQ(target.span().data[0], static_cast<std::byte>(round));
    EXPECT_EQ(target.span().data[65535], static_cast<std::byte>(round));
  }
}

TEST_F(CudaDevice, WorksOnAStreamThatSomebodyElseMade) {
  const auto trainer = device_->make_queue("trainer");
  std::vector<std::byte> sent = pattern(64, 3);
  std::vector<std::byte> received(64);
  const DeviceMemory memory = device_->allocate(64_B);
  trainer->copy(memory.span(), span_of(sent));
  Event behind;
  {
    const auto ours = queue_over_stream(*device_, stream_of(*trainer));
    EXPECT_EQ(stream_of(*ours), stream_of(*trainer));
    behind = ours->record();
  }
  const auto out = device_->make_queue("out");
  out->wait(behind);
  out->copy(span_of(received), memory.span());
  EXPECT_TRUE(out->record().wait().succeeded());
  EXPECT_EQ(sent, received);
  const auto host = make_cpu_device();
  EXPECT_THROW(queue_over_stream(*host, nullptr), Error);
  EXPECT_THROW(stream_of(*host->make_queue("host")), Error);
}

TEST_F(CudaDevice, RefusesToPinWhatIsPinned) {
  HostSlabs slabs(*device_, {.slab_size = 64_KiB, .slab_count = 1, .pinning = Pinning::kPinned});
  if (slabs.pinning() == Pinning::kPageable) GTEST_SKIP() << slabs.why_pageable();
  const HostSlab slab = *slabs.take();
  const std::string_view kRefusal = "64.0 KiB cannot be pinned for cuda:0";
  EXPECT_EQ(device_->pin_host(slab.span()).substr(0, kRefusal.size()), kRefusal);
  EXPECT_GT(device_->memory().total, 0_B) << "the refusal is over";
}

TEST_F(CudaDevice, CopiesFromAndToAPeer) {
  CudaFixture second;
  const auto peer = second.open(1);
  if (peer == nullptr) GTEST_SKIP() << second.why;
  EXPECT_TRUE(device_->capabilities().peer_copies);
  std::vector<std::byte> sent = pattern(kSize.count(), 17);
  std::vector<std::byte> received(kSize.count());
  const DeviceMemory here = device_->allocate(kSize);
  const DeviceMemory there = peer->allocate(kSize);
  const DeviceMemory back = device_->allocate(kSize);
  const auto ours = device_->make_queue("ours");
  const auto theirs = peer->make_queue("theirs");
  ours->copy(here.span(), span_of(sent));
  ours->copy(there.span(), here.span());
  theirs->wait(ours->record());
  theirs->copy(back.span(), there.span());
  ours->wait(theirs->record());
  ours->copy(span_of(received), back.span());
  EXPECT_TRUE(ours->record().wait().succeeded());
  EXPECT_EQ(sent, received);
}

TEST_F(CudaDevice, TellsItsFactsWithoutBeingOpened) {
  const CudaFacts facts = cuda_facts();
  EXPECT_EQ(facts.reason, "");
  EXPECT_TRUE(std::regex_match(facts.driver, std::regex("\\d+\\.\\d+"))) << facts.driver;
  EXPECT_TRUE(std::regex_match(facts.runtime, std::regex("13\\.\\d+"))) << facts.runtime;
  std::set<std::string> places;
  for (const CudaDeviceFacts& each : facts.devices) {
    EXPECT_NE(each.name, "");
    EXPECT_TRUE(std::regex_match(each.compute_capability, std::regex("\\d+\\.\\d+")))
        << each.compute_capability;
    EXPECT_GT(each.memory, 0_B);
    EXPECT_EQ(std::count(each.bus_address.begin(), each.bus_address.end(), ':'), 2)
        << each.bus_address;
    EXPECT_EQ(each.capabilities.peer_copies, facts.devices.size() > 1);
    EXPECT_LT(each.direct_peers.size(), facts.devices.size());
    EXPECT_EQ(cuda_facts_of(each.id).value().bus_address, each.bus_address);
  }
  EXPECT_FALSE(cuda_facts_of({DeviceKind::kCuda, 999}));
  EXPECT_EQ(facts.devices.front().id, device_->id());
  EXPECT_EQ(facts.devices.front().capabilities.virtual_memory,
            device_->capabilities().virtual_memory);
}

}  // namespace
}  // namespace spillway::device
