// Trainers with several streams, which hand storages to each other by events alone and run far
// ahead of the device. No thread waits for its own work before the end: what the engine forgets to
// wait for is then ordered by nothing else.
#include <gtest/gtest.h>

#include <array>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "pages_cases.h"
#include "support/host_memory_before.h"
#include "support/sanitized.h"

namespace spillway::swap {
namespace {

constexpr Bytes kWord(sizeof(std::uint64_t));
constexpr std::size_t kThreads = 3;
constexpr std::size_t kStreams = 2;  // Of each thread.
constexpr std::size_t kPagesMax = 3;
constexpr std::size_t kStorages = 12;
// Two storages of each thread: no operator can stand in the way of another for ever.
constexpr std::size_t kBudget = 2 * kPagesMax * kThreads;
constexpr std::size_t kWritten = 64;    // Words that operators may write.
constexpr std::size_t kReadMax = 4096;  // Words that a thread may read.
constexpr int kActions = tries(60, 30);
constexpr unsigned kSeeds = tries(24, 8);

std::uint64_t word_number(std::size_t place) { return 0x1234567800000000U + place; }

/// A storage and what becomes of it in the order in which streams were given their work.
struct Handed {
  std::byte* memory = nullptr;
  std::vector<std::size_t> words;    ///< Of each page the first one, by its place in the table.
  device::Event written;             ///< Who uses it waits for that.
  std::vector<device::Event> reads;  ///< Since; who writes it waits for them, too.
  bool is_dropped = false;
};

/// Storages that no thread is giving work on.
class Exchange {
 public:
  std::optional<Handed> take(std::size_t draw) {
    const std::lock_guard lock(mutex_);
    if (storages_.empty()) return std::nullopt;
    std::swap(storages_[draw % storages_.size()], storages_.back());
    std::optional<Handed> taken(std::move(storages_.back()));
    storages_.pop_back();
    return taken;
  }
  void put(Handed storage) {
    const std::lock_guard lock(mutex_);
    storages_.push_back(std::move(storage));
  }
  bool is_full() const {
    const std::lock_guard lock(mutex_);
    return storages_.size() >= kStorages;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Handed> storages_;
};

/// An event of a stream that tells of which one it is.
class InLine final : public device::EventState {
 public:
  InLine(device::Event event, const device::Queue& stream)
      : EventState(event.state()->device()), event_(std::move(event)), stream_(stream) {}
  bool is_done() const override { return event_.is_done(); }
  device::Outcome wait() const override { return event_.wait(); }
  Duration time_since(const EventState& /*earlier*/) const override { return {}; }
  const void* line() const override { return &stream_; }

 private:
  const device::Event event_;
  const device::Queue& stream_;
};

class StreamsUser {
 public:
  /// `table`: words to write. `log`: place for those that are read.
  StreamsUser(SwapEngine& swap, Exchange& exchange, device::DeviceSpan table,
              device::DeviceSpan log, unsigned seed)
      : swap_(swap), exchange_(exchange), table_(table), log_(log), random_(seed) {
    for (auto& stream : streams_) stream = running.device->make_queue("trainer");
  }

  /// Fills the budget, and uses memory of an ended storage again, while streams wait for `gate`.
  void begin_before(const std::shared_future<void>& gate) {
    device::Queue& stream = *streams_[0];
    stream.run([gate] {
      gate.wait();
      return device::Outcome();
    });
    for (std::size_t i = 0; i < kBudget / kPagesMax; ++i) exchange_.put(make(stream, kPagesMax));
    const std::byte* const ended = exchange_.take(0)->memory;
    swap_.release(swap_.find(ended).storage);
    Handed again = make(stream, kPagesMax);
    EXPECT_EQ(again.memory, ended);
    exchange_.put(std::move(again));
  }

  void run() {
    for (int i = 0; i < kActions; ++i) {
      const std::size_t action = draw(16);
      auto storage = exchange_.take(random_());
      if (!storage || (action < 3 && !exchange_.is_full())) {
        exchange_.put(make(any_stream(), 1 + draw(kPagesMax)));
        if (storage) exchange_.put(std::move(*storage));
      } else if (action < 12) {
        operate(std::move(*storage));
      } else if (action < 13) {
        storage->is_dropped |= swap_.drop(swap_.find(storage->memory).storage);
        exchange_.put(std::move(*storage));
      } else if (action < 14) {
        exchange_.put(std::move(*storage));
        swap_.make_room(page_size());
      } else {
        release(std::move(*storage));
      }
    }
  }

  void release_rest() {
    while (auto storage = exchange_.take(0)) release(std::move(*storage));
  }

  /// Once the engine has ended, with all its memory.
  void check() {
    for (const device::Event& end : ends_) EXPECT_EQ(end.wait().error, "");
    if (expected_.empty()) return;
    std::vector<std::uint64_t> read(expected_.size());
    const device::DeviceSpan here = device::host_span_of_all(read);
    streams_[0]->copy(here, log_.first(here.size));
    EXPECT_EQ(streams_[0]->record().wait().error, "");
    EXPECT_EQ(read, expected_);
  }

 private:
  std::size_t draw(std::size_t below) { return random_() % below; }
  device::Queue& any_stream() { return *streams_[draw(kStreams)]; }

  static device::DeviceSpan word_of(const Handed& storage, std::size_t page) {
    return {running.device->id(), storage.memory + page * page_bytes(), kWord};
  }
  device::DeviceSpan word_at(std::size_t place) const { return table_.part(kWord * place, kWord); }

  /// `ends_` keeps the streams' own ones: other streams wait for those.
  device::Event end_of(device::Queue& stream) {
    ends_.push_back(stream.record());
    return ends_.back();
  }
  static device::Event in_line(const device::Event& end, const device::Queue& stream) {
    return device::Event(std::make_shared<InLine>(end, stream));
  }

  void fill(device::Queue& stream, Handed& storage, std::byte* memory) {
    for (std::size_t page = 0; page < storage.words.size(); ++page)
      stream.copy({running.device->id(), memory + page * page_bytes(), kWord},
                  word_at(storage.words[page]));
    storage.written = end_of(stream);
    storage.reads.clear();
  }

  Handed make(device::Queue& stream, std::size_t pages) {
    Handed storage;
    while (storage.words.size() < pages) storage.words.push_back(draw(kWritten));
    const Bytes size = page_size() * pages;
    PinSet pins;
    if (const auto again = swap_.reuse(size, pins, in_line(stream.record(), stream))) {
      storage.memory = again->address;
    } else {
      storage.memory = draw(2) == 0 ? swap_.allocate(size, nullptr).address
                                    : swap_.allocate_unfilled(size).address;
      RangeUse all = swap_.find(storage.memory);
      all.writes = true;
      swap_.pin(pins, {&all, 1});
    }
    fill(stream, storage, storage.memory);
    swap_.unpin(pins, nullptr, in_line(storage.written, stream));
    return storage;
  }

  /// Computes a dropped storage again, elsewhere, as the product does.
  void restore(Handed& storage) {
    if (!std::exchange(storage.is_dropped, false)) return;
    device::Queue& stream = any_stream();
    wait_for(stream, storage, true);
    PinSet pins;
    const auto made = swap_.allocate(page_size() * storage.words.size(), &pins);
    fill(stream, storage, made.address);
    EXPECT_TRUE(swap_.adopt(swap_.find(storage.memory).storage, made.storage, pins));
    swap_.unpin(pins, nullptr, in_line(storage.written, stream));
    swap_.release(made.storage);
  }

  static void wait_for(device::Queue& stream, const Handed& storage, bool to_write) {
    stream.wait(storage.written);
    if (!to_write) return;
    for (const device::Event& read : storage.reads) stream.wait(read);
  }

  /// Gives a stream what an operator does to one of its storages.
  void use(device::Queue& stream, Handed& storage, const RangeUse& use) {
    wait_for(stream, storage, use.writes);
    for (std::size_t page = use.first; page < use.first + use.touched(); ++page) {
      if (use.writes) {
        storage.words[page] = draw(kWritten);
        stream.copy(word_of(storage, page), word_at(storage.words[page]));
      } else if (expected_.size() < kReadMax) {
        stream.copy(log_.part(kWord * expected_.size(), kWord), word_of(storage, page));
        expected_.push_back(word_number(storage.words[page]));
      }
    }
  }

  void operate(Handed first) {
    std::vector<Handed> storages;
    storages.push_back(std::move(first));
    if (draw(2) == 0)
      if (auto second = exchange_.take(random_())) storages.push_back(std::move(*second));
    std::vector<RangeUse> uses;
    for (Handed& storage : storages) {
      restore(storage);
      const std::size_t page = draw(storage.words.size());
      const std::size_t pages = 1 + draw(storage.words.size() - page);
      uses.push_back(swap_.find(storage.memory + page * page_bytes(), page_size() * pages));
      uses.back().writes = draw(2) == 0;
    }
    PinSet pins;
    const ResidencyOrders before = orders(uses.front().storage);
    swap_.pin(pins, uses, nullptr, &before);
    device::Queue& stream = any_stream();
    for (std::size_t i = 0; i < uses.size(); ++i) use(stream, storages[i], uses[i]);
    const device::Event end = end_of(stream);
    const ResidencyOrders after = orders(uses.back().storage);
    swap_.unpin(pins, &after, in_line(end, stream));
    for (std::size_t i = 0; i < uses.size(); ++i) {
      if (uses[i].writes) storages[i].reads.clear(), storages[i].written = end;
      if (!uses[i].writes) storages[i].reads.push_back(end);
      exchange_.put(std::move(storages[i]));
    }
  }

  ResidencyOrders orders(StorageId storage) {
    ResidencyOrders orders;
    const RangePart part(storage);
    switch (draw(4)) {
      case 0:
        orders.write_outs = {{part, static_cast<std::uint32_t>(1 + draw(kPagesMax)), {}}};
        break;
      case 1:
        orders.fetches = {{part, draw(2) == 0 ? OnFetch::kKeepStoreCopy : OnFetch::kDropStoreCopy}};
        break;
      case 2: orders.next_uses = {{part, draw(1000)}}; break;
      default: break;
    }
    return orders;
  }

  /// Reads all of it. A stream may go on with it beside its operator, and the allocator is told
  /// (`record_stream`).
  void release(Handed storage) {
    restore(storage);
    const RangeUse all = swap_.find(storage.memory);
    PinSet pins;
    swap_.pin(pins, {&all, 1});
    use(*streams_[0], storage, all);
    const device::Event end = end_of(*streams_[0]);
    if (draw(2) == 0) {
      swap_.unpin(pins, nullptr, in_line(end, *streams_[0]));
      swap_.release(all.storage);
      return;
    }
    use(*streams_[1], storage, all);
    streams_[1]->wait(end);
    swap_.release(all.storage, in_line(end_of(*streams_[1]), *streams_[1]));
    swap_.unpin(pins);
  }

  SwapEngine& swap_;
  Exchange& exchange_;
  const device::DeviceSpan table_;
  const device::DeviceSpan log_;
  std::mt19937 random_;
  std::array<std::unique_ptr<device::Queue>, kStreams> streams_;
  std::vector<std::uint64_t> expected_;  ///< In the log.
  std::vector<device::Event> ends_;
};

class SwapEngineStreamsTest : public PagesTest {
 protected:
  void SetUp() override {
    PagesTest::SetUp();
    if (!running.device) return;
    memory_ = running.device->allocate(kWord * (kWritten + kThreads * kReadMax));
    std::vector<std::uint64_t> words;
    for (std::size_t place = 0; place < kWritten; ++place) words.push_back(word_number(place));
    const device::DeviceSpan from = device::host_span_of_all(words);
    running.queue->copy(memory_.span().first(from.size), from);
    finish_operators();
  }
  void TearDown() override {
    memory_ = {};
    PagesTest::TearDown();
  }

  /// Slabs for some of what leaves, of which one stages.
  std::unique_ptr<SwapEngine> engine() {
    constexpr std::uint32_t kSlabs = 6;
    const auto notifier = std::make_shared<Notifier>();
    SwapEngineOptions options;
    options.budget = page_size() * kBudget;
    options.arena_size = 1_GiB;
    return make_engine(options,
                       host_memory_before(make_ram_store(Bytes(128 * kExtentBytes), 8, notifier),
                                          kSlabs, notifier, running.device),
                       clock_);
  }

  void run(unsigned seed) {
    auto swap = engine();
    Exchange exchange;
    const device::DeviceSpan table = memory_.span().first(kWord * kWritten);
    std::vector<std::unique_ptr<StreamsUser>> users;
    for (std::size_t i = 0; i < kThreads; ++i) {
      const device::DeviceSpan log =
          memory_.span().part(kWord * (kWritten + i * kReadMax), kWord * kReadMax);
      users.push_back(std::make_unique<StreamsUser>(*swap, exchange, table, log, seed * 100 + i));
    }
    std::promise<void> gate;
    users.front()->begin_before(gate.get_future().share());
    std::vector<std::thread> threads;
    for (const auto& user : users) threads.emplace_back([&user] { user->run(); });
    gate.set_value();
    for (std::thread& thread : threads) thread.join();
    users.front()->release_rest();
    const SwapStatistics statistics = swap->statistics();
    EXPECT_LE(statistics.counted_peak, page_size() * kBudget);
    EXPECT_EQ(statistics.live, Bytes());
    swap.reset();
    for (const auto& user : users) user->check();
  }

  SteadyClock clock_;
  device::DeviceMemory memory_;
};

TEST_P(SwapEngineStreamsTest, EqualAPlainMapWhileTheyHandPagesToEachOther) {
  if (!running.device) GTEST_SKIP() << "the host has no streams";
  for (unsigned seed = 1; seed <= kSeeds && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    run(seed);
  }
}

INSTANTIATE_TEST_SUITE_P(Pages, SwapEngineStreamsTest, testing::ValuesIn(all_pages()), pages_case);

}  // namespace
}  // namespace spillway::swap
