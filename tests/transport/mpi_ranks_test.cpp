// The suites of every transport, between ranks that an MPI has started: mpi_test.py starts them.
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "drawn_messages.h"
#include "notifier_conformance.h"
#include "spillway/transport/mpi.h"
#include "transport_conformance.h"

namespace spillway::transport {
namespace {

/// In several pieces, which do not travel with their envelope.
constexpr std::size_t kSize = (150u << 20) + 5;

/// The one transport of this process, for all cases.
class Job final : public ::testing::Environment {
 public:
  void SetUp() override {
    MpiOptions options;
    options.is_synchronous = std::getenv("SPILLWAY_TEST_SYNCHRONOUS") != nullptr;
    transport = make_mpi_transport(options);
  }
  void TearDown() override { transport.reset(); }

  static inline std::unique_ptr<MpiTransport> transport;
};

const auto* const job = ::testing::AddGlobalTestEnvironment(new Job);

/// All ranks run each body, and meet after it.
class Ranks {
 public:
  void run(const std::function<void(Transport&)>& body) {
    Transport& transport = *Job::transport;
    body(transport);
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    meet(transport);
  }
  void start(std::function<void()> work) { threads_.emplace_back(std::move(work)); }

 private:
  static void meet(Transport& transport) {
    static std::uint64_t meetings = 0;
    const Tag tag{Stream::kControl, (1ull << 60) + meetings++};
    std::vector<std::byte> bytes(1), in(1);
    std::vector<device::Event> events;
    for (std::uint32_t i = 0; i < transport.ranks(); ++i) {
      if (Rank(i) == transport.rank()) continue;
      events.push_back(transport.send(Rank(i), tag, span_of(bytes)));
      events.push_back(transport.receive(Rank(i), tag, span_of(in)));
    }
    for (const device::Event& event : events) expect_success(event);
  }

  std::vector<std::thread> threads_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, TransportConformance, Ranks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, NotifierConformance, Ranks);

TEST(MpiTransport, IsOneInAProcess) { EXPECT_THROW(make_mpi_transport(), Error); }

TEST(MpiTransport, RefusesMemoryOfOtherDevices) {
  std::vector<std::byte> bytes(8);
  device::DeviceSpan span = span_of(bytes);
  span.device = {device::DeviceKind::kCuda, 0};
  const Rank peer(Job::transport->rank() == Rank(0) ? 1 : 0);
  EXPECT_THROW(Job::transport->send(peer, value(1), span), UnsupportedError);
  EXPECT_THROW(Job::transport->receive(peer, value(1), span), UnsupportedError);
}

TEST(MpiTransport, DrainsBytesOfAnotherSizeThanTheExpectedOne) {
  Ranks ranks;
  run_pair(
      ranks,
      [](Transport& transport) {
        auto bytes = drawn_bytes(kSize, 1);
        auto next = drawn_bytes(100000, 2);
        expect_success(transport.send(Rank(1), value(1), span_of(bytes)));
        expect_success(transport.send(Rank(1), value(1), span_of(next)));
      },
      [](Transport& transport) {
        std::vector<std::byte> few(kSize - 1), next(100000);
        EXPECT_THAT(transport.receive(Rank(0), value(1), span_of(few)).wait().error,
                    ::testing::HasSubstr(message("{}", kSize)));
        expect_success(transport.receive(Rank(0), value(1), span_of(next)));
        EXPECT_EQ(next, drawn_bytes(100000, 2));
      });
}

TEST(MpiTransport, CarriesBytesOfSeveralPieces) {
  Ranks ranks;
  run_pair(
      ranks,
      [](Transport& transport) {
        auto bytes = drawn_bytes(kSize, 1);
        expect_success(transport.send(Rank(1), value(1), span_of(bytes)));
      },
      [](Transport& transport) {
        std::vector<std::byte> bytes(kSize);
        expect_success(transport.receive(Rank(0), value(1), span_of(bytes)));
        EXPECT_EQ(bytes, drawn_bytes(kSize, 1));
      });
}

TEST(MpiTransport, LetsManyThreadsOfARankSendAndReceive) {
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kMessages = 200;
  Ranks ranks;
  ranks.run([&](Transport& transport) {
    const Rank next((transport.rank().value() + 1) % transport.ranks());
    const Rank before((transport.rank().value() + transport.ranks() - 1) % transport.ranks());
    for (std::uint64_t thread = 0; thread < kThreads; ++thread)
      ranks.start([&transport, thread, next, before] {
        for (std::uint64_t i = 0; i < kMessages; ++i) {
          const std::uint64_t number = thread * kMessages + i;
          const std::size_t size = 1 + number % 17 * 1000;
          auto out = drawn_bytes(size, seed_of(transport.rank(), next, number));
          std::vector<std::byte> in(size);
          const device::Event received = transport.receive(before, value(number), span_of(in));
          expect_success(transport.send(next, value(number), span_of(out)));
          expect_success(received);
          EXPECT_EQ(in, drawn_bytes(size, seed_of(before, transport.rank(), number)));
        }
      });
  });
}

TEST(MpiTransport, KnowsHostsAndTheRanksOfItsOwn) {
  const MpiTransport& transport = *Job::transport;
  ASSERT_EQ(transport.job().hosts.size(), transport.ranks());
  for (const std::string& host : transport.job().hosts) EXPECT_EQ(host, transport.job().hosts[0]);
  EXPECT_FALSE(transport.job().hosts[0].empty());
  ASSERT_EQ(transport.job().ranks_here.size(), transport.ranks());
  for (std::uint32_t i = 0; i < transport.ranks(); ++i)
    EXPECT_EQ(transport.job().ranks_here[i], Rank(i));
  EXPECT_FALSE(transport.job().version.empty());
}

}  // namespace
}  // namespace spillway::transport
