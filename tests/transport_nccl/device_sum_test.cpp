// Sums of what lies on GPUs, over the transport between these.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>

#include "adding.h"
#include "nccl_ranks.h"
#include "spillway/allreduce/sum.h"
#include "transport/drawn_messages.h"

namespace spillway::transport {
namespace {

using allreduce::Element;
using Content = std::vector<std::byte>;

/// Memory of the host whose copies wait for their turn.
class Pinned {
 public:
  Pinned(device::Device& device, Bytes size)
      : device_(device),
        data_(
            static_cast<std::byte*>(std::aligned_alloc(kPage, (size.count() / kPage + 1) * kPage)),
            &std::free),
        span_(device::host_span(data_.get(), size)) {
    EXPECT_EQ(device_.pin_host(span_), "");
  }
  ~Pinned() { device_.unpin_host(span_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  device::DeviceSpan span() const { return span_; }

 private:
  static constexpr std::size_t kPage = 4096;
  device::Device& device_;
  const std::unique_ptr<std::byte, decltype(&std::free)> data_;
  const device::DeviceSpan span_;
};

/// Adds on the host what it fetches from a device and brings back, in the order of a queue.
class FetchedSums final : public allreduce::SumMemory {
 public:
  FetchedSums(device::Device& device, std::shared_ptr<Notifier> driver, bool carries_parts = true)
      : device_(device),
        carries_parts_(carries_parts),
        driver_(std::move(driver)),
        queue_(device.make_queue("sums")),
        ends_(device.make_queue("ends of sums")) {}

  device::DeviceId device() const override { return device_.id(); }
  bool carries_parts() const override { return carries_parts_; }

  std::shared_ptr<std::byte> allocate(Bytes size) override {
    auto memory = std::make_shared<device::DeviceMemory>(device_.allocate(size));
    rooms_.push_back(memory->span());
    return {memory, memory->span().data};
  }

  device::Event copy(std::byte* to, const std::byte* from, Bytes size) override {
    queue_->copy(span(to, size), span(from, size));
    return tell();
  }

  device::Event add_up(Element element, std::span<const std::byte* const> sources,
                       std::byte* target, Bytes size, double factor) override {
    EXPECT_TRUE(carries_parts_ || is_room(target));
    const auto room = [&] {
      return kept_.emplace_back(std::make_unique<Pinned>(device_, size))->span();
    };
    const device::DeviceSpan sum = room();
    std::vector<const std::byte*> fetched;
    for (const std::byte* source : sources) {
      const device::DeviceSpan bytes = room();
      queue_->copy(bytes, span(source, size));
      fetched.push_back(bytes.data);
    }
    queue_->run([=] {
      allreduce::add_up(element, fetched, sum.data, size, factor);
      return device::Outcome();
    });
    queue_->copy(span(target, size), sum);
    return tell();
  }

 private:
  device::DeviceSpan span(const std::byte* data, Bytes size) const {
    return {device_.id(), const_cast<std::byte*>(data), size};
  }

  bool is_room(const std::byte* bytes) const {
    return std::any_of(rooms_.begin(), rooms_.end(), [bytes](const device::DeviceSpan& room) {
      return room.data <= bytes && bytes < room.data + room.size.count();
    });
  }

  device::Event tell() {
    const device::Event event = queue_->record();
    ends_->wait(event);
    ends_->run([driver = driver_] {
      driver->notify();
      return device::Outcome();
    });
    return event;
  }

  device::Device& device_;
  const bool carries_parts_;
  const std::shared_ptr<Notifier> driver_;
  std::vector<device::DeviceSpan> rooms_;
  std::vector<std::unique_ptr<Pinned>> kept_;
  const std::unique_ptr<device::Queue> queue_;
  const std::unique_ptr<device::Queue> ends_;
};

/// Numbers of the kind, from bits that are drawn: small ones, so that none overflows.
Content drawn_numbers(Element element, std::size_t count, std::uint64_t seed) {
  Content bytes = drawn_bytes(count * allreduce::size_of(element).count(), seed);
  if (element == Element::kFloat32)
    for (std::size_t i = 3; i < bytes.size(); i += 4)
      bytes[i] = (bytes[i] & std::byte{0x83}) | std::byte{0x3c};
  if (element == Element::kBfloat16)
    for (std::size_t i = 1; i < bytes.size(); i += 2)
      bytes[i] = (bytes[i] & std::byte{0x83}) | std::byte{0x3c};
  return bytes;
}

void drive(allreduce::Sum& sum, Notifier& notifier) {
  while (!sum.advance()) notifier.wait();
}

/// The same parts on the host and on the device.
void compare(const NcclRanks::Member& member, std::uint64_t number, Element element,
             const allreduce::SumOptions& options, bool carries_parts = true) {
  NcclTransport& transport = member.transport;
  const std::shared_ptr<Notifier> notifier = transport.make_notifier(Stream::kSums);
  const auto queue = member.device.make_queue("parts");
  FetchedSums memory(member.device, notifier, carries_parts);
  std::vector<Content> parts;
  std::vector<std::span<std::byte>> on_host;
  std::vector<device::DeviceMemory> rooms;
  std::vector<device::DeviceSpan> on_device;
  for (const std::size_t count : {7U, 30'000U, 1U, 9'001U}) {
    parts.push_back(
        drawn_numbers(element, count, number * 64 + transport.rank().value() * 8 + parts.size()));
    Content& part = parts.back();
    rooms.push_back(member.device.allocate(Bytes(part.size())));
    on_device.push_back({member.device.id(), rooms.back().span().data, Bytes(part.size())});
    queue->copy(on_device.back(), span_of(part));
  }
  for (Content& part : parts) on_host.emplace_back(part);
  EXPECT_EQ(queue->record().wait().error, "");

  drive(*allreduce::begin_sum(transport, number, element, on_device, memory, options), *notifier);
  drive(*allreduce::begin_sum(transport, number + 1, element, on_host, options), *notifier);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Content fetched(parts[i].size());
    queue->copy(span_of(fetched), on_device[i]);
    EXPECT_EQ(queue->record().wait().error, "");
    EXPECT_EQ(fetched, parts[i]) << "part " << i << " of sum " << number;
  }
}

TEST(DeviceSum, HasTheBitsOfTheHosts) {
  NcclRanks ranks(4);
  ranks.run_members([](const NcclRanks::Member& member) {
    allreduce::SumOptions options;
    options.piece = 16_KiB;
    options.factor = 0.25;
    compare(member, 10, Element::kFloat32, options);
    compare(member, 20, Element::kBfloat16, options);
    compare(member, 40, Element::kFloat32, options, /*carries_parts=*/false);
    options.order = allreduce::Order::kFast;
    options.small = 1_KiB;
    compare(member, 30, Element::kFloat32, options);
  });
}

TEST(DeviceSum, RefusesPartsOfAnotherDevice) {
  NcclRanks ranks(1);
  ranks.run_members([](const NcclRanks::Member& member) {
    FetchedSums memory(member.device, member.transport.make_notifier());
    Content bytes(8);
    EXPECT_THROW(
        allreduce::begin_sum(member.transport, 1, Element::kFloat32, {span_of(bytes)}, memory),
        Error);
  });
}

}  // namespace
}  // namespace spillway::transport
