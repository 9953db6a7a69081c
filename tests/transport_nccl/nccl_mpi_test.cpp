// Ranks that an MPI has started, each with a GPU: nccl_mpi_test.py starts them. With a word, how
// one of them is lost in the middle of a message.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "device_values.h"
#include "nccl_ranks.h"
#include "spillway/transport/mpi.h"
#include "transport/drawn_messages.h"
#include "transport/notifier_conformance.h"
#include "transport/transport_conformance.h"

namespace spillway::transport {
namespace {

/// The one transport of this process, for all cases.
class Job final : public ::testing::Environment {
 public:
  void SetUp() override {
    host = make_mpi_transport();
    // Each rank sees all GPUs of the host, or its own one alone, as launchers have it.
    const std::string self = std::to_string(host->rank().value());
    const bool sees_its_own = std::getenv("SPILLWAY_TEST_OWN_GPU") != nullptr;
    if (sees_its_own) ::setenv("CUDA_VISIBLE_DEVICES", self.c_str(), 1);
    gpu = open_gpu(sees_its_own ? 0 : host->rank().value());
    options.patience = std::chrono::milliseconds(200);
    transport = make_nccl_transport(*host, *gpu, options);
    bounced = std::make_unique<BouncedTransport>(*transport, *gpu);
  }
  void TearDown() override {
    bounced.reset();
    transport.reset();
    gpu.reset();
    host.reset();
  }

  NcclOptions options;
  static inline std::unique_ptr<MpiTransport> host;
  static inline std::unique_ptr<device::Device> gpu;
  static inline std::unique_ptr<NcclTransport> transport;
  static inline std::unique_ptr<BouncedTransport> bounced;
};

/// All ranks run each body, and meet after it.
class Ranks {
 public:
  void run(const std::function<void(Transport&)>& body) {
    body(*Job::bounced);
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    static std::uint64_t meetings = 0;
    const Tag tag{Stream::kControl, meetings++};
    std::vector<std::byte> out(1), in(1);
    std::vector<device::Event> events;
    for (std::uint32_t i = 0; i < Job::host->ranks(); ++i) {
      if (Rank(i) == Job::host->rank()) continue;
      events.push_back(Job::host->send(Rank(i), tag, span_of(out)));
      events.push_back(Job::host->receive(Rank(i), tag, span_of(in)));
    }
    for (const device::Event& event : events) expect_success(event);
  }
  void start(std::function<void()> work) { threads_.emplace_back(std::move(work)); }

 private:
  std::vector<std::thread> threads_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(NcclMpi, TransportConformance, Ranks);
INSTANTIATE_TYPED_TEST_SUITE_P(NcclMpi, NotifierConformance, Ranks);

TEST(NcclMpi, AddsUpTheValuesOfAllRanks) {
  std::vector<Rank> all;
  for (std::uint32_t i = 0; i < Job::host->ranks(); ++i) all.emplace_back(i);
  const auto group = Job::transport->make_groups({all});
  DeviceValues<std::int32_t> values(
      *Job::gpu, std::vector<std::int32_t>(100'000, 1 << Job::host->rank().value()));
  expect_success(group->all_reduce(1, values.span(), SumElement::kInt32, values.ready()));
  EXPECT_EQ(values.get(), std::vector<std::int32_t>(100'000, (1 << all.size()) - 1));
}

/// Rank 1 sends what is never ready, and stops being there.
void lose_rank_one(int by) {
  Job job;
  job.options.silence = std::chrono::seconds(1);
  job.SetUp();
  DeviceValues<float> values(*Job::gpu, std::vector<float>(1000));
  if (Job::host->rank() == Rank(1)) {
    values.queue().run([] {
      while (true) ::pause();
      return device::Outcome();
    });
    const auto notifier = Job::transport->make_notifier();
    const device::Event sent =
        Job::transport->send(Rank(0), value(1), values.span(), values.queue().record());
    while (!Job::transport->moment_of(sent)) notifier->wait();
    ::raise(by);
    return;
  }
  const device::Event came =
      Job::transport->receive(Rank(1), value(1), values.span(), values.ready());
  Job::transport->abort(came.wait().error);
}

}  // namespace
}  // namespace spillway::transport

int main(int count, char** words) {
  using namespace spillway::transport;
  if (count == 2 && std::string_view(words[1]) == "stopped") lose_rank_one(SIGSTOP);
  if (count == 2 && std::string_view(words[1]) == "killed") lose_rank_one(SIGKILL);
  testing::AddGlobalTestEnvironment(new Job);
  testing::InitGoogleTest(&count, words);
  return RUN_ALL_TESTS();
}
