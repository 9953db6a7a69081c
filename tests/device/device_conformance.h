#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/device/copy_rates.h"
#include "spillway/device/device.h"
#include "spillway/device/host_slabs.h"

namespace spillway::device {

/// A device that a case looks at.
template <typename Fixture>
class DeviceCase : public testing::Test {
 protected:
  static constexpr Bytes kSize{3 << 20};

  void SetUp() override {
    device_ = fixture_.open();
    if (device_ == nullptr) GTEST_SKIP() << fixture_.why;
  }

  static DeviceSpan span_of(std::vector<std::byte>& bytes) {
    return host_span(bytes.data(), Bytes(bytes.size()));
  }

  static std::vector<std::byte> pattern(std::size_t size, std::size_t factor) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * factor);
    return bytes;
  }

  Fixture fixture_;
  std::unique_ptr<Device> device_;
};

/// What every device must do; its queues: queue_conformance.h. A backend joins both with a fixture
/// that has `std::unique_ptr<Device> open()` (none: the cases are skipped with `std::string why`)
/// and
///   INSTANTIATE_TYPED_TEST_SUITE_P(Name, DeviceConformance, Fixture);
///   INSTANTIATE_TYPED_TEST_SUITE_P(Name, QueueConformance, Fixture);
template <typename Fixture>
class DeviceConformance : public DeviceCase<Fixture> {};

TYPED_TEST_SUITE_P(DeviceConformance);

TYPED_TEST_P(DeviceConformance, CopiesBytesThroughItsMemory) {
  std::vector<std::byte> sent = this->pattern(TestFixture::kSize.count(), 7);
  std::vector<std::byte> received(TestFixture::kSize.count());
  const DeviceMemory memory = this->device_->allocate(TestFixture::kSize);
  EXPECT_EQ(memory.span().device, this->device_->id());
  EXPECT_EQ(memory.span().size, TestFixture::kSize);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.span().data) % (2 << 20), 0u);
  const auto queue = this->device_->make_queue("test");
  queue->copy(memory.span(), this->span_of(sent));
  queue->copy(this->span_of(received), memory.span());
  EXPECT_TRUE(queue->record().wait().succeeded());
  EXPECT_EQ(sent, received);
}

TYPED_TEST_P(DeviceConformance, CopiesPartsOfSpans) {
  std::vector<std::byte> sent = this->pattern(64, 3);
  std::vector<std::byte> received(64);
  const DeviceMemory memory = this->device_->allocate(Bytes(64));
  const auto queue = this->device_->make_queue("test");
  queue->copy(memory.span(), this->span_of(sent));
  queue->copy(this->span_of(received).part(Bytes(8), Bytes(16)),
              memory.span().part(Bytes(32), Bytes(16)));
  queue->copy(memory.span().first(Bytes()), this->span_of(sent).first(Bytes()));
  EXPECT_TRUE(queue->record().wait().succeeded());
  EXPECT_EQ(std::memcmp(received.data() + 8, sent.data() + 32, 16), 0);
  EXPECT_EQ(received[7], std::byte{0});
  EXPECT_EQ(received[24], std::byte{0});
}

TYPED_TEST_P(DeviceConformance, OrdersCopiesOfTwoQueues) {
  std::vector<std::byte> sent = this->pattern(TestFixture::kSize.count(), 5);
  std::vector<std::byte> received(TestFixture::kSize.count());
  const DeviceMemory memory = this->device_->allocate(TestFixture::kSize);
  const auto in = this->device_->make_queue("in");
  const auto out = this->device_->make_queue("out");
  in->copy(memory.span(), this->span_of(sent));
  out->wait(in->record());
  out->copy(this->span_of(received), memory.span());
  out->record().wait();
  EXPECT_EQ(sent, received);
}

TYPED_TEST_P(DeviceConformance, TellsItsMemory) {
  EXPECT_GT(this->device_->memory().total, Bytes());
  EXPECT_LE(this->device_->memory().free, this->device_->memory().total);
}

TYPED_TEST_P(DeviceConformance, RefusesWhatNoMachineHas) {
  EXPECT_THROW(this->device_->allocate(Bytes(std::uint64_t{1} << 60)), Error);
  EXPECT_THROW(this->device_->allocate(Bytes(~std::uint64_t{0})), Error);
}

TYPED_TEST_P(DeviceConformance, TakesSpansInItsReachOnly) {
  std::vector<std::byte> bytes(64);
  const auto queue = this->device_->make_queue("test");
  const DeviceSpan foreign{{DeviceKind::kCuda, 77}, bytes.data(), Bytes(64)};
  EXPECT_DEATH(queue->copy(this->span_of(bytes), foreign), "is_in_reach");
  EXPECT_DEATH(queue->copy(this->span_of(bytes), this->span_of(bytes).first(Bytes(63))), "size");
}

TYPED_TEST_P(DeviceConformance, MeasuresItsCopies) {
  const CopyRates rates = measure_copies(*this->device_);
  EXPECT_GT(rates.out.bytes_per_second(), 0.0);
  EXPECT_GT(rates.in.bytes_per_second(), 0.0);
  EXPECT_GT(rates.both.bytes_per_second(), 0.0);
}

TYPED_TEST_P(DeviceConformance, CopiesToAndFromSlabs) {
  HostSlabs slabs(*this->device_,
                  {.slab_size = 64_KiB, .slab_count = 4, .pinning = Pinning::kPinned});
  EXPECT_EQ(slabs.pinning() == Pinning::kPinned, slabs.why_pageable().empty());
  if (!this->device_->capabilities().pinned_host_memory) {
    EXPECT_EQ(slabs.pinning(), Pinning::kPageable);
  }
  const auto slab = slabs.take();
  ASSERT_TRUE(slab);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(slab->span().data) % 4096, 0u);
  std::vector<std::byte> sent = this->pattern(slab->span().size.count(), 11);
  const DeviceMemory memory = this->device_->allocate(slab->span().size);
  const auto queue = this->device_->make_queue("test");
  queue->copy(memory.span(), this->span_of(sent));
  queue->copy(slab->span(), memory.span());
  EXPECT_TRUE(queue->record().wait().succeeded());
  EXPECT_EQ(std::memcmp(slab->span().data, sent.data(), sent.size()), 0);
}

REGISTER_TYPED_TEST_SUITE_P(DeviceConformance, CopiesBytesThroughItsMemory, CopiesPartsOfSpans,
                            OrdersCopiesOfTwoQueues, TellsItsMemory, RefusesWhatNoMachineHas,
                            TakesSpansInItsReachOnly, MeasuresItsCopies, CopiesToAndFromSlabs);

}  // namespace spillway::device
