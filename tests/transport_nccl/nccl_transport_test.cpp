// Ranks as threads, each with a GPU, on the emulated CUDA and on a real machine.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <future>
#include <numeric>
#include <random>
#include <thread>

#include "device_values.h"
#include "nccl_ranks.h"
#include "support/manual_clock.h"
#include "transport/drawn_messages.h"
#include "transport/notifier_conformance.h"
#include "transport/transport_conformance.h"

namespace spillway::transport {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

using Member = NcclRanks::Member;
using Values = DeviceValues<float>;

constexpr std::size_t kCount = 50'000;

INSTANTIATE_TYPED_TEST_SUITE_P(Nccl, TransportConformance, BouncedRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Nccl, NotifierConformance, BouncedRanks);

std::vector<float> values_of(Rank rank, std::uint64_t number, std::size_t count = kCount) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(),
            static_cast<float>(rank.value() * 1000 + number * 10) + 0.5F);
  return values;
}

/// Sleeps until the device has been given it.
device::Event moment_of(const Member& member, const device::Event& event) {
  const auto notifier = member.transport.make_notifier();
  while (true) {
    if (const auto moment = member.transport.moment_of(event)) return *moment;
    if (event.is_done()) throw TransportError("{}", event.wait().error);
    notifier->wait();
  }
}

TEST(NcclTransport, MovesBytesOnceTheyAreReadyAndNobodyWaits) {
  NcclRanks ranks(2);
  std::promise<void> may_compute;
  std::shared_future<void> computed = may_compute.get_future().share();
  ranks.run_members([&](const Member& member) {
    Values values(member.device, std::vector<float>(kCount, -1.0F));
    if (member.transport.rank() == Rank(0)) {
      values.queue().run([computed] {
        computed.wait();
        return device::Outcome();
      });
      values.set(values_of(Rank(0), 1));
      const device::Event sent =
          member.transport.send(Rank(1), value(1), values.span(), values.ready());
      moment_of(member, sent);
      EXPECT_FALSE(sent.is_done());
      // So the call above has not waited for it.
      may_compute.set_value();
      expect_success(sent);
      return;
    }
    const device::Event came =
        member.transport.receive(Rank(0), value(1), values.span(), values.ready());
    // The host waits for the copy alone.
    values.queue().wait(moment_of(member, came));
    EXPECT_EQ(values.get(), values_of(Rank(0), 1));
    expect_success(came);
  });
}

// Neither rank's program waits for a message: each is sent on from where it comes.
TEST(NcclTransport, SendsOnWhatHasNotComeYet) {
  NcclRanks ranks(4);
  ranks.run_members([](const Member& member) {
    NcclTransport& transport = member.transport;
    const std::uint32_t self = transport.rank().value();
    Values values(member.device, values_of(transport.rank(), 0));
    device::Event last = values.ready();
    for (std::uint64_t round = 0; round < 5; ++round) {
      const bool is_first = self == 0 && round == 0;
      const Rank before((self + transport.ranks() - 1) % transport.ranks());
      const Rank next((self + 1) % transport.ranks());
      if (!is_first)
        last = transport.receive(before, value(self == 0 ? round - 1 : round), values.span(), last);
      if (self + 1 < transport.ranks() || round < 4)
        last = transport.send(next, value(round), values.span(), last);
    }
    expect_success(last);
    EXPECT_EQ(values.get(), values_of(Rank(0), 0));
  });
}

TEST(NcclTransport, TakesMoreMessagesAtOnceThanAGroupOfNcclHas) {
  constexpr std::uint64_t kMessages = 300;
  NcclRanks ranks(2);
  ranks.run_members([](const Member& member) {
    const Rank self = member.transport.rank();
    const Rank peer(1 - self.value());
    std::vector<std::uint64_t> numbers(kMessages);
    for (std::uint64_t i = 0; i < kMessages; ++i) numbers[i] = self.value() * 1000 + i;
    DeviceValues<std::uint64_t> out(member.device, numbers);
    DeviceValues<std::uint64_t> in(member.device, std::vector<std::uint64_t>(kMessages));
    const auto part = [](const auto& values, std::uint64_t i) {
      return values.span().part(Bytes(i * 8), Bytes(8));
    };
    std::vector<device::Event> events;
    // The two ask for them from different ends.
    for (std::uint64_t k = 0; k < kMessages; ++k) {
      const std::uint64_t i = self == Rank(0) ? k : kMessages - 1 - k;
      events.push_back(member.transport.send(peer, value(i), part(out, i), out.ready()));
      events.push_back(member.transport.receive(peer, value(i), part(in, i), in.ready()));
    }
    for (const device::Event& event : events) expect_success(event);
    for (std::uint64_t i = 0; i < kMessages; ++i) numbers[i] = peer.value() * 1000 + i;
    EXPECT_EQ(in.get(), numbers);
  });
}

/// All ranks ask for the same in orders that differ, each in one go: in the order of any of them
/// some devices would wait for one another.
TEST(NcclTransport, AgreesOnAnOrderWhereProgramsHaveNone) {
  constexpr std::uint64_t kRounds = 5;
  NcclRanks ranks(4);
  ranks.run_members([](const Member& member) {
    NcclTransport& transport = member.transport;
    const Rank self = transport.rank();
    std::vector<std::function<void()>> requests;
    std::vector<std::unique_ptr<Values>> kept;
    std::vector<std::function<void()>> checks;
    for (std::uint32_t i = 0; i < transport.ranks(); ++i) {
      if (Rank(i) == self) continue;
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        Values& out = *kept.emplace_back(
            std::make_unique<Values>(member.device, values_of(self, round + 100 * i, 30'000)));
        Values& in =
            *kept.emplace_back(std::make_unique<Values>(member.device, std::vector<float>(30'000)));
        requests.push_back([&, i, round] {
          const auto sent = transport.send(Rank(i), value(round), out.span(), out.ready());
          checks.push_back([sent] { expect_success(sent); });
        });
        requests.push_back([&, i, round] {
          const auto came = transport.receive(Rank(i), value(round), in.span(), in.ready());
          checks.push_back([&in, i, round, self, came] {
            expect_success(came);
            EXPECT_EQ(in.get(), values_of(Rank(i), round + 100ULL * self.value(), 30'000));
          });
        });
      }
    }
    std::mt19937_64 random(self.value());
    std::shuffle(requests.begin(), requests.end(), random);
    for (const auto& request : requests) request();
    for (const auto& check : checks) check();
  });
}

void check_groups(const Member& member) {
  NcclTransport& transport = member.transport;
  const std::uint32_t self = transport.rank().value();
  // Their ranks are not in the order of the job's.
  const auto group = transport.make_groups({{Rank(3), Rank(0)}, {Rank(1), Rank(2)}});
  ASSERT_NE(group, nullptr);
  ASSERT_EQ(group->ranks(), 2U);
  EXPECT_EQ(group->rank(), Rank(self == 3 || self == 1 ? 0 : 1));
  const Rank other(self == 3 ? 0 : self == 0 ? 3 : self == 1 ? 2 : 1);
  const Rank low(group->rank() == Rank(0) ? self : other.value());
  const Rank high(group->rank() == Rank(0) ? other.value() : self);

  Values sum(member.device, values_of(Rank(self), 0));
  Values sent(member.device, values_of(Rank(self), 1));
  Values all(member.device, 2 * kCount);
  DeviceValues<std::int64_t> wide(member.device, {10, 20, 30, 40});
  DeviceValues<std::int64_t> part(member.device, 2);
  Values in(member.device, kCount);
  const auto message = [&](bool sends) {
    return sends ? transport.send(other, value(9), sent.span(), sent.ready())
                 : transport.receive(other, value(9), in.span());
  };
  // Groups and messages, in orders that differ.
  std::vector<device::Event> events;
  if (group->rank() == Rank(0)) events.push_back(message(true));
  events.push_back(group->all_reduce(1, sum.span(), SumElement::kFloat32, sum.ready()));
  if (group->rank() == Rank(1)) events.push_back(message(true));
  events.push_back(group->all_gather(2, sent.span(), all.span(), sent.ready()));
  events.push_back(
      group->reduce_scatter(3, wide.span(), part.span(), SumElement::kInt64, wide.ready()));
  events.push_back(message(false));
  for (const device::Event& event : events) expect_success(event);

  std::vector<float> expected = values_of(low, 0);
  const std::vector<float> theirs = values_of(high, 0);
  for (std::size_t i = 0; i < kCount; ++i) expected[i] += theirs[i];
  EXPECT_EQ(sum.get(), expected);
  expected = values_of(low, 1);
  const std::vector<float> second = values_of(high, 1);
  expected.insert(expected.end(), second.begin(), second.end());
  EXPECT_EQ(all.get(), expected);
  EXPECT_EQ(part.get(), group->rank() == Rank(0) ? (std::vector<std::int64_t>{20, 40})
                                                 : (std::vector<std::int64_t>{60, 80}));
  EXPECT_EQ(in.get(), values_of(other, 1));
  expect_success(group->broadcast(4, Rank(1), sent.span(), sent.ready()));
  EXPECT_EQ(sent.get(), values_of(high, 1));
}

TEST(NcclGroup, AddsUpGathersAndBroadcastsBesideMessages) {
  NcclRanks ranks(4);
  ranks.run_members(check_groups);
}

/// Calls of ncclCommSplit by four ranks that make groups with the emulated NCCL, which says that it
/// is of `release`.
int splits_of(const char* library, const std::string& release) {
  NcclOptions options;
  options.library = library;
  EXPECT_EQ(nccl_facts(library).version, release);
  NcclRanks ranks(4, options);
  ranks.run_members(check_groups);
  const auto* const splits =
      static_cast<const int*>(::dlsym(::dlopen(library, RTLD_LAZY), "spillway_splits"));
  return splits == nullptr ? -1 : *splits;
}

TEST(NcclGroup, IsDividedFromTheJobWhereNcclCan) {
  const char* const library = std::getenv("SPILLWAY_TEST_NCCL_2_18");
  if (library == nullptr) GTEST_SKIP() << "only the emulated NCCL comes in several releases";
  EXPECT_EQ(splits_of(library, "2.18.0"), 4);
}

TEST(NcclGroup, WorksWithAnNcclThatCannotSplit) {
  const char* const library = std::getenv("SPILLWAY_TEST_NCCL_2_16");
  if (library == nullptr) GTEST_SKIP() << "only the emulated NCCL comes in several releases";
  EXPECT_EQ(splits_of(library, "2.16.2"), 0);
}

TEST(NcclGroup, NamesWhoAsksForSomethingElse) {
  NcclRanks ranks(3);
  ranks.run_members([](const Member& member) {
    const std::uint32_t self = member.transport.rank().value();
    const auto group = member.transport.make_groups({{Rank(0), Rank(1), Rank(2)}});
    Values values(member.device, values_of(Rank(self), 0));
    const auto more = values.span().first(Bytes(self == 2 ? 400 : 800));
    EXPECT_EQ(group->all_reduce(5, more, SumElement::kFloat32, values.ready()).wait().error,
              self == 2 ? "all-reduce 5 of a group of 3 ranks has 800 bytes on rank 0, and 400 on "
                          "rank 2"
                        : message("all-reduce 5 of a group of 3 ranks has 400 bytes on rank 2, and "
                                  "800 on rank {}",
                                  self));
    const auto other =
        self == 1 ? group->broadcast(6, Rank(0), values.span(), values.ready())
                  : group->all_reduce(6, values.span(), SumElement::kFloat32, values.ready());
    EXPECT_THAT(other.wait().error,
                HasSubstr(self == 1 ? ": rank 0 has an all-reduce of that number"
                                    : ": rank 1 has a broadcast of that number"));
  });
}

TEST(NcclGroup, OfOneRankWorksOnOneGpu) {
  NcclRanks ranks(1);
  ranks.run_members([](const Member& member) {
    const auto group = member.transport.make_groups({{Rank(0)}});
    Values values(member.device, values_of(Rank(0), 0));
    Values all(member.device, kCount);
    expect_success(group->all_reduce(1, values.span(), SumElement::kFloat32, values.ready()));
    expect_success(group->all_gather(2, values.span(), all.span(), values.ready()));
    EXPECT_EQ(all.get(), values_of(Rank(0), 0));
  });
}

// NCCL is still in the call that divides the job, and the ranks disagree on who has which group.
TEST(NcclGroup, ThatIsNotMadeEndsTheJob) {
  if (ranks_with_a_gpu(2) < 2) GTEST_SKIP() << "two GPUs are needed";
  ThreadRanks ranks(2);
  std::promise<void> started;
  ranks.run([&](Transport& host) {
    NcclOptions options;
    // Only real NCCL needs a limit: it does not promise to tell that another rank has given up.
    options.start_limit = std::chrono::seconds(60);
    options.patience = options.silence = std::chrono::milliseconds(20);
    const auto gpu = open_gpu(host.rank().value());
    const auto transport = make_nccl_transport(host, *gpu, options);
    if (host.rank() == Rank(1)) {
      started.get_future().wait();
      return;  // To the end, which rank 0 does not come to.
    }
    started.set_value();
    EXPECT_THROW(transport->make_groups({{Rank(0), Rank(1)}}), TransportError);
    Values values(*gpu, kCount);
    EXPECT_THROW(transport->send(Rank(1), value(1), values.span()), TransportError);
  });
}

TEST(NcclTransport, TakesMemoryOfItsDeviceAndOfTheHost) {
  NcclRanks ranks(2);
  ranks.run_members([](const Member& member) {
    const Rank self = member.transport.rank();
    const Rank peer(1 - self.value());
    std::vector<std::byte> out = drawn_bytes(100, self.value());
    std::vector<std::byte> in(100);
    const device::Event sent = member.transport.send(peer, value(1), span_of(out));
    expect_success(member.transport.receive(peer, value(1), span_of(in)));
    expect_success(sent);
    EXPECT_EQ(in, drawn_bytes(100, peer.value()));

    Values values(member.device, kCount);
    device::DeviceSpan elsewhere = values.span();
    elsewhere.device.index = static_cast<std::uint16_t>(peer.value());
    EXPECT_THROW(member.transport.send(peer, value(2), elsewhere), UnsupportedError);
  });
}

TEST(NcclTransport, RefusesWhatWouldHaveADeviceWaitForTheHost) {
  NcclRanks ranks(2);
  ranks.run_members([](const Member& member) {
    std::vector<std::byte> first(1), second(1);
    if (member.transport.rank() == Rank(1)) {
      expect_success(member.host.receive(Rank(0), value(1), span_of(first)));
      expect_success(member.host.send(Rank(0), value(2), span_of(second)));
      return;
    }
    Values values(member.device, kCount);
    const device::Event late = member.host.receive(Rank(1), value(2), span_of(second));
    EXPECT_THROW(member.transport.send(Rank(1), value(3), values.span(), late), Error);
    expect_success(member.host.send(Rank(1), value(1), span_of(first)));
    expect_success(late);
  });
}

TEST(NcclTransport, NamesARankThatHasLeftWithoutAMessage) {
  if (ranks_with_a_gpu(2) < 2) GTEST_SKIP() << "two GPUs are needed";
  ThreadRanks ranks(2);
  ranks.run([](Transport& host) {
    const auto gpu = open_gpu(host.rank().value());
    for (const std::uint32_t leaver : {0U, 1U}) {
      const auto transport = make_nccl_transport(host, *gpu);
      if (host.rank() == Rank(leaver)) continue;
      Values values(*gpu, kCount);
      const device::Event came = transport->receive(Rank(leaver), value(3), values.span());
      EXPECT_EQ(came.wait().error,
                message("rank {} has left the job without value 3 from rank {} to rank {}", leaver,
                        leaver, 1 - leaver));
    }
  });
}

TEST(NcclTransport, NamesARankThatDiesInTheMiddleOfAMessage) {
  if (ranks_with_a_gpu(2) < 2) GTEST_SKIP() << "two GPUs are needed";
  ThreadRanks ranks(2);
  // Of rank 0: however late the other one is, nobody is gone before its death.
  const auto clock = std::make_shared<ManualClock>();
  std::promise<void> may_compute;
  std::promise<void> died;
  std::shared_future<void> computed = may_compute.get_future().share();
  ranks.run([&](Transport& host) {
    NcclOptions options;
    if (host.rank() == Rank(0)) options.clock = clock;
    const auto gpu = open_gpu(host.rank().value());
    const auto transport = make_nccl_transport(host, *gpu, options);
    const Member member{host, *transport, *gpu};
    Values values(member.device, values_of(Rank(0), 1));
    if (member.transport.rank() == Rank(1)) {
      values.queue().run([computed] {
        computed.wait();
        return device::Outcome();
      });
      const device::Event sent =
          member.transport.send(Rank(0), value(1), values.span(), values.queue().record());
      moment_of(member, sent);
      ranks.silence(Rank(1));
      died.set_value();
      computed.wait();
      EXPECT_THAT(sent.wait().error, AnyOf(HasSubstr("has failed in work of the device"),
                                           HasSubstr("rank 0 does not answer")));
      return;
    }
    const device::Event came =
        member.transport.receive(Rank(1), value(1), values.span(), values.ready());
    const std::string reason =
        "rank 1 does not answer while rank 0 waits for it with value 1 from rank 1 to rank 0";
    died.get_future().wait();
    for (; !came.is_done(); std::this_thread::yield()) clock->advance(options.patience);
    EXPECT_EQ(came.wait().error, reason);
    EXPECT_THROW(member.transport.send(Rank(1), value(2), values.span()), TransportError);
    try {
      const auto notifier = member.transport.make_notifier();
      notifier->notify();
      notifier->wait();
      ADD_FAILURE();
    } catch (const TransportError& error) {
      EXPECT_EQ(error.what(), reason);
    }
    may_compute.set_value();
  });
}

/// What the ranks are told, each, where there is no transport.
template <typename Refusal>
void expect_refusal(ThreadRanks& ranks, const NcclOptions& options,
                    const std::function<std::uint32_t(Rank)>& gpu,
                    const testing::Matcher<std::string>& sentence) {
  ranks.run([&](Transport& host) {
    const auto device = open_gpu(gpu(host.rank()));
    try {
      make_nccl_transport(host, *device, options);
      ADD_FAILURE() << "rank " << host.rank();
    } catch (const Refusal& refusal) {
      EXPECT_THAT(refusal.what(), sentence) << "rank " << host.rank();
    }
  });
}

TEST(NcclTransport, RefusesTwoRanksOnOneGpu) {
  if (ranks_with_a_gpu(1) == 0) GTEST_SKIP() << device::cuda_backend().probe().reason;
  ThreadRanks ranks(3);
  expect_refusal<ConfigError>(
      ranks, {}, [](Rank) { return 0U; },
      AllOf(HasSubstr("ranks 0 and 1 have the same GPU (0000:"),
            HasSubstr("give each another one (CUDA_VISIBLE_DEVICES)")));
}

TEST(NcclTransport, RefusesWithOneSentenceWhatARankLacks) {
  if (ranks_with_a_gpu(1) == 0) GTEST_SKIP() << device::cuda_backend().probe().reason;
  ThreadRanks ranks(2);
  NcclOptions options;
  options.library = "/there/is/no/libnccl.so";
  expect_refusal<UnsupportedError>(
      ranks, options, [](Rank) { return 0U; },
      HasSubstr("rank 0: the NCCL that was named cannot be opened: /there/is/no/libnccl.so"));
}

TEST(NcclTransport, NamesARankThatDoesNotComeToTheStart) {
  if (ranks_with_a_gpu(1) == 0) GTEST_SKIP() << device::cuda_backend().probe().reason;
  ThreadRanks ranks(2);
  NcclOptions options;
  options.start_limit = std::chrono::milliseconds(50);
  ranks.run([&](Transport& host) {
    if (host.rank() == Rank(1)) return;
    const auto device = open_gpu(0);
    try {
      make_nccl_transport(host, *device, options);
      ADD_FAILURE();
    } catch (const TransportError& error) {
      EXPECT_STREQ(error.what(), "rank 1 did not come to the start of NCCL within 0.05 s");
    }
  });
}

}  // namespace
}  // namespace spillway::transport
