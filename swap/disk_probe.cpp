#include "spillway/swap/disk_probe.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <random>
#include <string_view>
#include <thread>
#include <utility>

#include "spillway/base/error.h"
#include "store/mapped_memory.h"

namespace spillway::swap {
namespace {

constexpr std::chrono::milliseconds kPatience = std::chrono::seconds(60);

enum class Pattern { kWrite, kRead, kMixed };

std::string_view name_of(Pattern pattern) {
  switch (pattern) {
    case Pattern::kWrite: return "write";
    case Pattern::kRead: return "read";
    case Pattern::kMixed: return "write and read";
  }
  return "";
}

// Bytes that no drive can compress.
void fill_with_noise(MappedMemory& memory) {
  std::mt19937_64 random(1);
  for (std::size_t i = 0; i < memory.size(); i += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(memory.begin() + i, &word, sizeof word);
  }
}

/// Extents that go back to the store with the measurement.
class ProbeExtents {
 public:
  ProbeExtents(SpillStore& store, std::size_t count) : store_(store) {
    while (extents_.size() < count) {
      const auto extent = store_.reserve_extent();
      if (!extent) {
        release();
        throw IoError("cannot measure with {}: {}", Bytes(count * kExtentBytes),
                      store_.report().refusal);
      }
      extents_.push_back(*extent);
    }
    std::sort(extents_.begin(), extents_.end());  // walked upwards, like a new file
  }
  ~ProbeExtents() { release(); }
  ProbeExtents(const ProbeExtents&) = delete;
  ProbeExtents& operator=(const ProbeExtents&) = delete;

  std::size_t size() const { return extents_.size(); }
  ExtentId operator[](std::size_t index) const { return extents_[index]; }

 private:
  void release() {
    for (const ExtentId extent : extents_) store_.release_extent(extent);
    extents_.clear();
  }

  SpillStore& store_;
  std::vector<ExtentId> extents_;
};

/// Bytes per second.
struct PassRates {
  double write = 0.0;
  double read = 0.0;
};

/// One walk over the extents with a fixed number of transfers in flight.
class Pass {
 public:
  Pass(SpillStore& store, const ProbeExtents& extents, const MappedMemory& memory,
       const Clock& clock)
      : store_(store), extents_(extents), memory_(memory), clock_(clock) {}

  PassRates run(Pattern pattern, std::size_t block, std::size_t depth, Duration longest) {
    const TimePoint start = clock_.now();
    std::vector<std::size_t> idle_pages;
    for (std::size_t i = 0; i < depth; ++i) idle_pages.push_back(i);
    std::size_t next = 0;
    while (next < extents_.size() || store_.in_flight() > 0) {
      if (clock_.now() - start > longest && next < extents_.size()) next = extents_.size();
      while (next < extents_.size() && !idle_pages.empty()) {
        submit(pattern, next++, block, idle_pages.back());
        idle_pages.pop_back();
      }
      if (store_.in_flight() > 0) reap(idle_pages);
    }
    const double time_s = std::max(seconds(clock_.now() - start), 1e-9);
    return {static_cast<double>(written_) / time_s, static_cast<double>(read_) / time_s};
  }

 private:
  void submit(Pattern pattern, std::size_t index, std::size_t block, std::size_t page) {
    const bool is_write =
        pattern == Pattern::kWrite || (pattern == Pattern::kMixed && index % 2 == 0);
    (is_write ? written_ : read_) += block;
    store_.submit({is_write ? Direction::kWrite : Direction::kRead, extents_[index],
                   memory_.begin() + page * kExtentBytes, block, page});
  }

  void reap(std::vector<std::size_t>& idle_pages) {
    results_.clear();
    store_.reap(results_, kPatience);
    if (results_.empty())
      throw IoError("no transfer has finished for {} s", kPatience.count() / 1000);
    for (const TransferResult& result : results_) {
      if (result.error != 0) throw IoError("measurement failed: {}", result.detail);
      idle_pages.push_back(static_cast<std::size_t>(result.transfer.tag));
    }
  }

  SpillStore& store_;
  const ProbeExtents& extents_;
  const MappedMemory& memory_;
  const Clock& clock_;
  std::vector<TransferResult> results_;
  std::uint64_t written_ = 0;
  std::uint64_t read_ = 0;
};

void check(const DiskProbeOptions& options, std::size_t deepest) {
  if (options.file_size < Bytes(kExtentBytes))
    throw ConfigError("a measurement needs a file of {} or more, not of {}", Bytes(kExtentBytes),
                      options.file_size);
  if (options.repetitions == 0) throw ConfigError("a measurement needs at least one repetition");
  for (const Bytes block : options.block_sizes) {
    const bool is_possible =
        block > Bytes() && block <= Bytes(kExtentBytes) && block.count() % kTransferAlignment == 0;
    if (!is_possible)
      throw ConfigError("a block of {} cannot be measured: give a multiple of 4 KiB, 2 MiB at most",
                        block);
  }
  for (const std::size_t depth : options.queue_depths) {
    if (depth < 1 || depth > deepest)
      throw ConfigError("{} transfers in flight cannot be measured: give from 1 to {}", depth,
                        deepest);
  }
}

std::size_t deepest_of(const DiskProbeOptions& options) {
  std::size_t deepest = 1;
  for (const std::size_t depth : options.queue_depths) deepest = std::max(deepest, depth);
  return deepest;
}

/// Runs the passes of one probe and tells how far they are.
class Measurement {
 public:
  Measurement(SpillStore& store, const DiskProbeOptions& options, const Clock& clock)
      : store_(store),
        options_(options),
        clock_(clock),
        memory_(deepest_of(options) * kExtentBytes),
        extents_(store, options.file_size.count() / kExtentBytes) {
    fill_with_noise(memory_);
    progress_.passes_total =
        1 + 3 * options.repetitions * options.block_sizes.size() * options.queue_depths.size() +
        (options.workload ? options.slowdowns : 0);
  }

  PassRates pass(Pattern pattern, Bytes block, std::size_t depth, Duration longest) {
    progress_.current =
        message("{}, {} blocks, depth {}", name_of(pattern), to_string(block), depth);
    if (options_.progress) options_.progress(progress_);
    ++progress_.passes;
    return Pass(store_, extents_, memory_, clock_).run(pattern, block.count(), depth, longest);
  }

  DiskPoint point(Bytes block, std::size_t depth) {
    std::vector<double> write, read, mixed_write, mixed_read;
    for (std::size_t i = 0; i < options_.repetitions; ++i) {
      const Duration longest = options_.longest_pass;
      write.push_back(pass(Pattern::kWrite, block, depth, longest).write);
      read.push_back(pass(Pattern::kRead, block, depth, longest).read);
      const PassRates both = pass(Pattern::kMixed, block, depth, longest);
      mixed_write.push_back(both.write);
      mixed_read.push_back(both.read);
    }
    return {block,
            depth,
            spread_of(std::move(write)),
            spread_of(std::move(read)),
            spread_of(std::move(mixed_write)),
            spread_of(std::move(mixed_read))};
  }

  /// The workload before, beside and after passes over the file.
  std::optional<double> slowdown() {
    const std::unique_ptr<Workload> work = options_.workload();
    const auto alone = [&] { return rounds_per_second(*work, [&] { work->wait(kAlone); }); };
    std::vector<SlowdownSample> samples;
    alone();  // Threads and memory get ready.
    double before = alone();
    for (std::size_t i = 0; i < options_.slowdowns; ++i) {
      SlowdownSample& sample = samples.emplace_back();
      sample.beside = rounds_per_second(*work, [&] {
        const PassRates rates =
            pass(Pattern::kMixed, Bytes(kExtentBytes), deepest_of(options_), kBeside);
        sample.bytes_per_second = rates.write + rates.read;
      });
      const double after = alone();
      sample.alone = (before + after) / 2;
      before = after;
    }
    return slowdown_per_byte(samples);
  }

 private:
  static constexpr Duration kAlone = std::chrono::milliseconds(300);
  static constexpr Duration kBeside = std::chrono::milliseconds(500);

  template <typename Action>
  double rounds_per_second(const Workload& work, const Action& action) const {
    const std::uint64_t rounds = work.rounds();
    const TimePoint start = clock_.now();
    action();
    const double time_s = std::max(seconds(clock_.now() - start), 1e-9);
    return static_cast<double>(work.rounds() - rounds) / time_s;
  }

  SpillStore& store_;
  const DiskProbeOptions& options_;
  const Clock& clock_;
  MappedMemory memory_;
  ProbeExtents extents_;
  DiskProbeProgress progress_;
};

}  // namespace

const DiskPoint* DiskProbe::best() const {
  const auto sum = [](const DiskPoint& entry) {
    return entry.mixed_write.median + entry.mixed_read.median;
  };
  const auto found =
      std::max_element(points.begin(), points.end(),
                       [&](const DiskPoint& a, const DiskPoint& b) { return sum(a) < sum(b); });
  return found == points.end() ? nullptr : &*found;
}

std::optional<double> DiskProbe::fixed_seconds(Spread DiskPoint::*direction) const {
  std::optional<double> fixed;
  Bytes largest;
  for (const DiskPoint& one : points) {
    if (one.queue_depth != 1 || one.block < largest) continue;
    double most = 0.0;
    for (const DiskPoint& many : points)
      if (many.block == one.block && many.queue_depth > 1)
        most = std::max(most, (many.*direction).median);
    const double alone = (one.*direction).median;
    if (most <= 0.0 || alone <= 0.0) continue;
    largest = one.block;
    const auto bytes = static_cast<double>(one.block.count());
    fixed = std::max(0.0, bytes / alone - bytes / most);
  }
  return fixed;
}

DiskProbe measure_store(SpillStore& store, const DiskProbeOptions& options, const Clock& clock) {
  check(options, store.queue_depth());
  DiskProbe probe;
  probe.file_size = Bytes(options.file_size.count() / kExtentBytes * kExtentBytes);
  Measurement measurement(store, options, clock);
  // Every extent must have been written before one is read: no limit of time here.
  probe.first_write_bytes_per_second =
      measurement.pass(Pattern::kWrite, Bytes(kExtentBytes), deepest_of(options), Duration::max())
          .write;
  for (const Bytes block : options.block_sizes)
    for (const std::size_t depth : options.queue_depths)
      probe.points.push_back(measurement.point(block, depth));
  if (options.workload) probe.slowdown_seconds_per_byte = measurement.slowdown();
  return probe;
}

namespace {

/// Measures as the I/O thread of a run transfers, on a thread that shares the store's descriptors.
/// Progress is told by the calling thread, whose standard error is the program's.
DiskProbe measure_as_a_run_does(SpillStore& store, DiskProbeOptions options) {
  std::mutex mutex;
  std::condition_variable changed;
  const DiskProbeProgress* told = nullptr;
  bool is_over = false;
  const auto tell = std::exchange(options.progress, [&](const DiskProbeProgress& progress) {
    std::unique_lock lock(mutex);
    told = &progress;
    changed.notify_all();
    changed.wait(lock, [&] { return told == nullptr; });
  });
  std::packaged_task<DiskProbe()> task(
      [&] { return measure_store(store, options, SteadyClock()); });
  std::thread thread = store.descriptors()->start_thread([&] {
    task();
    const std::lock_guard lock(mutex);
    is_over = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return is_over || told != nullptr; });
    if (is_over) break;
    if (tell) tell(*told);
    told = nullptr;
    changed.notify_all();
  }
  lock.unlock();
  thread.join();
  return task.get_future().get();
}

}  // namespace

DiskProbe measure_directory(const std::string& directory, const DiskProbeOptions& options) {
  check(options, deepest_of(options));
  SpillStoreOptions store_options;
  store_options.directories = {{directory, options.file_size}};
  store_options.kind = options.kind;
  store_options.queue_depth = deepest_of(options);
  OpenedSpillStore opened = make_spill_store(store_options);
  DiskProbe probe = opened.store->descriptors() == nullptr
                        ? measure_store(*opened.store, options, SteadyClock())
                        : measure_as_a_run_does(*opened.store, options);
  probe.description = std::move(opened.description);
  probe.warnings = std::move(opened.warnings);
  return probe;
}

}  // namespace spillway::swap
