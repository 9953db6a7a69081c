#include "spillway/swap/slowdown_probe.h"

#include <sched.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "spillway/base/median.h"
#include "spillway/swap/spill_store.h"

namespace spillway::swap {
namespace {

// A round takes about a millisecond: short beside the times that are compared.
constexpr std::size_t kStreamed = std::size_t{1} << 20;  // Floats per array: more than caches near.
constexpr std::size_t kStreamedPerRound = std::size_t{1} << 17;
constexpr std::size_t kCached = 2048;
constexpr int kPassesOverCached = 128;

std::size_t usable_processors() {
  cpu_set_t usable;
  if (::sched_getaffinity(0, sizeof usable, &usable) != 0) return 1;
  return static_cast<std::size_t>(std::max(1, CPU_COUNT(&usable)));
}

class ComputingThreads final : public Workload {
 public:
  ComputingThreads() : meet_(static_cast<std::ptrdiff_t>(usable_processors()), Count{rounds_}) {
    for (std::size_t i = 0; i < usable_processors(); ++i) threads_.emplace_back([this] { work(); });
  }
  ~ComputingThreads() override {
    ends_.store(true);
    for (std::thread& thread : threads_) thread.join();
  }

  std::uint64_t rounds() const override { return rounds_.load(); }
  void wait(Duration time) override { std::this_thread::sleep_for(time); }

 private:
  struct Count {
    std::atomic<std::uint64_t>& rounds;
    void operator()() noexcept { ++rounds; }
  };

  void work() {
    std::vector<float> from(kStreamed, 1.0F);
    std::vector<float> to(kStreamed, 2.0F);
    std::vector<float> cached(kCached, 1.0F);
    std::size_t begin = 0;
    while (!ends_.load(std::memory_order_relaxed)) {
      for (std::size_t i = begin; i < begin + kStreamedPerRound; ++i) to[i] += 0.5F * from[i];
      begin = (begin + kStreamedPerRound) % kStreamed;
      for (int pass = 0; pass < kPassesOverCached; ++pass)
        for (float& each : cached) each = 0.999F * each + 0.001F;
      meet_.arrive_and_wait();
    }
    sink_.store(to[begin] + cached[0], std::memory_order_relaxed);  // Somebody wants to know.
    meet_.arrive_and_drop();
  }

  std::atomic<std::uint64_t> rounds_{0};
  std::atomic<bool> ends_{false};
  std::atomic<float> sink_{0.0F};
  std::barrier<Count> meet_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<Workload> make_workload() { return std::make_unique<ComputingThreads>(); }

std::optional<double> slowdown_per_byte(std::span<const SlowdownSample> samples) {
  constexpr std::size_t kFewest = 3;
  constexpr double kSmall = 1e-11;
  constexpr double kMost = 1e-9;
  std::vector<double> costs;
  for (const SlowdownSample& sample : samples)
    if (sample.alone > 0.0 && sample.bytes_per_second > 0.0)
      costs.push_back((1.0 - sample.beside / sample.alone) / sample.bytes_per_second);
  if (costs.size() < kFewest) return std::nullopt;
  std::sort(costs.begin(), costs.end());
  const std::size_t last = costs.size() - 1;
  const double spread = costs[(3 * last + 2) / 4] - costs[(last + 2) / 4];
  const double typical = median(costs);
  if (spread > std::max(kSmall, typical) || typical > kMost) return std::nullopt;
  return std::max(0.0, typical);
}

double measure_checksums(const Clock& clock) {
  constexpr std::size_t kPages = 32;  // More than caches hold.
  constexpr int kPasses = 5;
  std::vector<std::byte> memory(kPages * kExtentBytes, std::byte{1});
  std::vector<double> rates;
  std::uint64_t sum = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const TimePoint start = clock.now();
    for (std::size_t page = 0; page < kPages; ++page)
      sum ^= XXH3_64bits(memory.data() + page * kExtentBytes, kExtentBytes);
    // The sum is used, so that it is taken.
    const double took = std::max(seconds(clock.now() - start), sum == 1 ? 2e-9 : 1e-9);
    rates.push_back(static_cast<double>(memory.size()) / took);
  }
  return median(rates);
}

}  // namespace spillway::swap
