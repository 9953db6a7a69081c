// Storages of GPUs that go to other ranks' GPUs, and what the default stream waits for. The
// emulated CUDA ends the process where something is used that nothing has waited for.
#include "device_messages.h"
#include "device_transfer.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "adding.h"
#include "device_sums.h"
#include "transport_nccl/thread_ranks.h"

namespace spillway::split {
namespace {

using transport::Stream;
using transport::Tag;

constexpr std::int64_t kNumbers = 1 << 16;
constexpr Rank kSender(0), kReceiver(1);

/// No budget limits this memory.
void run_at_once(const c10::OperatorHandle&, c10::ArrayRef<c10::IValue>, c10::ArrayRef<c10::IValue>,
                 const std::function<void()>& run) {
  run();
}

/// A rank as a thread, with a GPU of its own.
struct Member {
  transport::Transport& host;
  c10::Device gpu;
  const DeviceBytes& bytes;
  DeviceMessages& messages;
  transport::Notifier& notifier;

  at::TensorOptions options() const { return at::TensorOptions(gpu).dtype(at::kFloat); }
  at::Tensor numbers() const { return at::arange(kNumbers, options()); }

  /// Until the other rank has come here, too.
  void meet(std::uint64_t number) const {
    const Rank other(1 - host.rank().value());
    std::uint64_t mine = number, theirs = 0;
    const Tag tag{Stream::kControl, number};
    const device::Event sent = host.send(other, tag, device::host_span_of(mine));
    const device::Event came = host.receive(other, tag, device::host_span_of(theirs));
    EXPECT_TRUE(came.wait().succeeded() && sent.wait().succeeded());
  }
  using Transfer = DeviceMessages::Transfer;
  std::unique_ptr<Transfer> receive(Tag tag) const {
    return messages.receive(kSender, tag, gpu, Bytes(kNumbers * sizeof(float)));
  }
  void until_usable(Transfer& message) const {
    while (!message.advance() && !message.may_be_used()) notifier.wait();
  }
  void until_done(Transfer& message) const {
    std::optional<device::Outcome> end;
    for (end = message.advance(); !end; end = message.advance()) notifier.wait();
    EXPECT_EQ(end->error, "");
  }
};

/// `least_paged`: storages from that size on go in pieces of half of it.
template <typename Body>
void run_two(const Body& body, Bytes least_paged = 1_GiB) {
  static Bytes least;
  least = least_paged;
  transport::ThreadRanks ranks(2);
  ranks.run([&](transport::Transport& host) {
    const c10::Device gpu(c10::DeviceType::CUDA,
                          static_cast<c10::DeviceIndex>(host.rank().value()));
    const c10::DeviceGuard guard(gpu);
    const DeviceBytes bytes({}, &run_at_once);
    DeviceMessages messages(host, 2, bytes, [](c10::Device) { return least; });
    messages.start(gpu, /*adds_up=*/false);
    ASSERT_TRUE(messages.is_on());
    {
      const auto notifier = messages.make_notifier();
      body(Member{host, gpu, bytes, messages, *notifier});
    }
    messages.stop();
  });
}

at::Tensor tensor_over(const c10::Storage& storage) {
  return at::empty({0}, at::TensorOptions(storage.device()).dtype(at::kFloat))
      .set_(storage, 0, {kNumbers}, {1});
}

bool are_numbers(const at::Tensor& tensor) {
  return tensor.cpu().equal(at::arange(kNumbers, at::kFloat));
}

void send_what_is_being_made(const Member& member) {
  const Tag tag{Stream::kValues, 1};
  if (member.host.rank() == kSender) {
    const at::Tensor made = member.numbers() * 2 - member.numbers();
    return member.until_done(*member.messages.send(kReceiver, tag, made.storage()));
  }
  // LibTorch's allocator hands out the memory of the last one again, which work still writes.
  at::full({kNumbers}, 7.0, member.options()).mul_(3);
  const auto message = member.receive(tag);
  member.until_usable(*message);
  member.messages.before_read(message->storage());
  const at::Tensor used = tensor_over(message->storage()) + 0;
  member.until_done(*message);
  EXPECT_EQ(member.messages.why_lost(), "");
  EXPECT_TRUE(are_numbers(used));
}

TEST(DeviceMessages, CarryWhatIsStillBeingMadeIntoMemoryThatWasUsedUntilNow) {
  run_two(send_what_is_being_made);
}

TEST(DeviceMessages, CarryInPiecesWhatMayMoveBelowItsAddress) {
  run_two(send_what_is_being_made, 32_KiB);
  run_two(send_what_is_being_made, 100_KiB);  // With a last piece that is smaller.
}

/// The sender writes it before the receiver asks for it. Whether in a copy.
void write_what_is_sent(const Member& member, bool copies) {
  const Tag tag{Stream::kValues, 2};
  if (member.host.rank() == kSender) {
    const at::Tensor sent = member.numbers();
    const auto message = member.messages.send(kReceiver, tag, sent.storage());
    const c10::Storage written = member.messages.before_write(sent.storage());
    EXPECT_EQ(written.data() != sent.storage().data(), copies);
    tensor_over(written).add_(1).sub_(at::ones({kNumbers}, member.options()));
    EXPECT_TRUE(are_numbers(tensor_over(written)));
    tensor_over(written).zero_();
    member.meet(1);
    member.until_done(*message);
    EXPECT_EQ(member.messages.before_write(sent.storage()).data(), sent.storage().data());
    return;
  }
  member.meet(1);
  const auto message = member.receive(tag);
  member.until_usable(*message);
  member.messages.before_read(message->storage());
  EXPECT_TRUE(are_numbers(tensor_over(message->storage())));
  member.until_done(*message);
}

TEST(DeviceMessages, KeepWhatTheirReceiverHasNotAskedForWhenItIsWritten) {
  run_two([](const Member& member) { write_what_is_sent(member, /*copies=*/true); });
}

TEST(DeviceMessages, KeepWhatHasPiecesLeftWhenItIsWritten) {
  const auto write = [](const Member& member) { write_what_is_sent(member, /*copies=*/true); };
  run_two(write, 32_KiB);
}

TEST(DeviceMessages, LeaveToItsWriterWhatHasAllItsPiecesOnTheirWay) {
  const auto write = [](const Member& member) { write_what_is_sent(member, /*copies=*/false); };
  run_two(write, 64_KiB);
}

TEST(DeviceMessages, HaveOperatorsWaitThatWriteWhatIsOnItsWay) {
  run_two([](const Member& member) {
    const Tag tag{Stream::kValues, 3};
    const at::Tensor numbers = member.numbers();
    const bool sends = member.host.rank() == kSender;
    const auto message =
        sends ? member.messages.send(kReceiver, tag, numbers.storage()) : member.receive(tag);
    const c10::Storage& storage = message->storage();
    member.until_usable(*message);
    // By the one it is read and by the other one written.
    EXPECT_EQ(member.messages.before_write(storage).data(), storage.data());
    tensor_over(storage).mul_(0);
    EXPECT_TRUE(tensor_over(storage).cpu().equal(at::zeros({kNumbers})));
    member.until_done(*message);
  });
}

std::size_t bytes_taken(c10::Device gpu) {
  auto* const counts = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(gpu.type()));
  return static_cast<std::size_t>(counts->getDeviceStats(gpu.index()).allocated_bytes[0].current);
}

TEST(DeviceMessages, TakeRoomForTheWholeWithItsFirstPiece) {
  run_two(
      [](const Member& member) {
        const Tag tag{Stream::kValues, 4};
        if (member.host.rank() == kReceiver) {
          const std::size_t before = bytes_taken(member.gpu);
          const auto message = member.receive(tag);
          EXPECT_FALSE(message->may_be_used());
          EXPECT_EQ(bytes_taken(member.gpu) - before, DeviceMessages::kPieces * (16 << 10));
          EXPECT_FALSE(message->storage());  // No room before the first piece.
          member.meet(1);
          while (!message->storage()) {
            EXPECT_FALSE(message->advance());
            if (!message->storage()) member.notifier.wait();
          }
          EXPECT_FALSE(message->may_be_used());  // The last ones have not been sent.
          member.meet(2);
          return member.until_done(*message);
        }
        member.meet(1);
        const at::Tensor numbers = member.numbers();
        const auto message = member.messages.send(kReceiver, tag, numbers.storage());
        member.meet(2);
        member.until_done(*message);
      },
      32_KiB);
}

std::vector<at::Tensor> drawn(std::size_t count, at::ScalarType type) {
  at::manual_seed(5);
  std::vector<at::Tensor> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(at::randn({1001}).mul_(3).to(type));
  return all;
}

const std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.storage().data());
}

void compare_sums(allreduce::Element element, at::ScalarType type, double factor,
                  std::size_t target) {
  const c10::Device gpu(c10::DeviceType::CUDA, 0);
  const DeviceBytes bytes({}, &run_at_once);
  DeviceSums sums(gpu, bytes);
  std::vector<at::Tensor> on_host = drawn(4, type), on_gpu;
  std::vector<const std::byte*> host_sources, gpu_sources;
  for (const at::Tensor& tensor : on_host) {
    on_gpu.push_back(tensor.to(gpu));
    host_sources.push_back(bytes_of(tensor));
    gpu_sources.push_back(bytes_of(on_gpu.back()));
  }
  const Bytes size(on_host.front().nbytes());
  sums.add_up(element, gpu_sources, const_cast<std::byte*>(gpu_sources[target]), size, factor);
  allreduce::add_up(element, host_sources, const_cast<std::byte*>(host_sources[target]), size,
                    factor);
  EXPECT_TRUE(on_gpu[target].cpu().view(at::kByte).equal(on_host[target].view(at::kByte)))
      << type << ' ' << target;
}

TEST(DeviceSums, HaveTheBitsOfTheHost) {
  using allreduce::Element;
  for (const std::size_t target : {0U, 1U, 3U}) {
    compare_sums(Element::kFloat32, at::kFloat, 1.0 / 3, target);
    compare_sums(Element::kFloat64, at::kDouble, 1.0 / 3, target);
    compare_sums(Element::kFloat16, at::kHalf, 1.0 / 3, target);
    compare_sums(Element::kBfloat16, at::kBFloat16, 1.0 / 3, target);
    compare_sums(Element::kInt32, at::kInt, 1, target);
  }
}

}  // namespace
}  // namespace spillway::split
