// Storages of GPUs that go to other ranks' GPUs, and what the default stream waits for. The
// emulated CUDA ends the process where something is used that nothing has waited for.
#include "device_messages.h"

#include <ATen/ATen.h>
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
  void until_begun(const device::Event& event) const {
    while (!messages.has_begun(event)) notifier.wait();
  }
  static void until_done(const device::Event& event) { EXPECT_EQ(event.wait().error, ""); }
};

template <typename Body>
void run_two(const Body& body) {
  transport::ThreadRanks ranks(2);
  ranks.run([&](transport::Transport& host) {
    const c10::Device gpu(c10::DeviceType::CUDA,
                          static_cast<c10::DeviceIndex>(host.rank().value()));
    const c10::DeviceGuard guard(gpu);
    const DeviceBytes bytes({}, &run_at_once);
    DeviceMessages messages(host, 2, bytes, [](c10::Device) { return 1_GiB; });
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

TEST(DeviceMessages, CarryWhatIsStillBeingMadeIntoMemoryThatWasUsedUntilNow) {
  run_two([](const Member& member) {
    const Tag tag{Stream::kValues, 1};
    if (member.host.rank() == kSender) {
      const at::Tensor made = member.numbers() * 2 - member.numbers();
      Member::until_done(member.messages.send(kReceiver, tag, made.storage()));
      return;
    }
    // LibTorch's allocator hands out the memory of the last one again, which work still writes.
    at::full({kNumbers}, 7.0, member.options()).mul_(3);
    const c10::Storage storage = made_storage(kNumbers * sizeof(float), member.gpu);
    const device::Event event = member.messages.receive(kSender, tag, storage);
    member.until_begun(event);
    member.messages.before_read(storage);
    const at::Tensor used = tensor_over(storage) + 0;
    EXPECT_EQ(member.messages.why_lost(), "");
    EXPECT_TRUE(are_numbers(used));
  });
}

TEST(DeviceMessages, KeepWhatTheirReceiverHasNotAskedForWhenItIsWritten) {
  run_two([](const Member& member) {
    const Tag tag{Stream::kValues, 2};
    if (member.host.rank() == kSender) {
      const at::Tensor sent = member.numbers();
      const device::Event event = member.messages.send(kReceiver, tag, sent.storage());
      const c10::Storage written = member.messages.before_write(sent.storage());
      EXPECT_NE(written.data(), sent.storage().data());
      tensor_over(written).add_(1).sub_(at::ones({kNumbers}, member.options()));
      EXPECT_TRUE(are_numbers(tensor_over(written)));
      tensor_over(written).zero_();
      member.meet(1);
      Member::until_done(event);
      return;
    }
    member.meet(1);
    const c10::Storage storage = made_storage(kNumbers * sizeof(float), member.gpu);
    const device::Event event = member.messages.receive(kSender, tag, storage);
    member.until_begun(event);
    member.messages.before_read(storage);
    EXPECT_TRUE(are_numbers(tensor_over(storage)));
    Member::until_done(event);
  });
}

TEST(DeviceMessages, HaveOperatorsWaitThatWriteWhatIsOnItsWay) {
  run_two([](const Member& member) {
    const Tag tag{Stream::kValues, 3};
    const bool sends = member.host.rank() == kSender;
    const at::Tensor numbers = member.numbers();
    const c10::Storage& storage = numbers.storage();
    const device::Event event = sends ? member.messages.send(kReceiver, tag, storage)
                                      : member.messages.receive(kSender, tag, storage);
    member.until_begun(event);
    // By the one it is read and by the other one written.
    EXPECT_EQ(member.messages.before_write(storage).data(), storage.data());
    tensor_over(storage).mul_(0);
    EXPECT_TRUE(tensor_over(storage).cpu().equal(at::zeros({kNumbers})));
    Member::until_done(event);
  });
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
