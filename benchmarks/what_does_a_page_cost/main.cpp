// How long does each verb of a frame mapper take for one page? Google Benchmark, time measured
// around the verb alone: what has to be undone before the next one does not count.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#include "spillway/memory/frame_mapper.h"

namespace spillway::memory {
namespace {

constexpr std::size_t kPages = 128;
constexpr int kIterations = 1000;

enum class Frames { kHuge, kSmall };

/// Pages with a frame each, which lies in the page or in the slot of the same number.
class Pages final : public AccessSink {
 public:
  Pages(MapperKind kind, Frames frames) : mapper_(make_frame_mapper(kind)) {
    regions_ = mapper_->reserve(kPages * kPageSize, kPages * kPageSize, *this);
    mapper_->prepare(regions_.arena, kPages);
    const int advice = frames == Frames::kHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
    for (std::byte* region : {regions_.arena, regions_.pool})
      if (::madvise(region, kPages * kPageBytes, advice) != 0)
        throw std::runtime_error("madvise: " + std::string(std::strerror(errno)));
    std::memset(regions_.pool, 1, kPages * kPageBytes);
  }

  FrameMapper& mapper() { return *mapper_; }
  std::byte* page(std::size_t index) { return regions_.arena + index * kPageBytes; }

  void bring_in(std::size_t index, Access allowed) {
    is_in_ = true;
    if (mapper_->map(page(index), slot(index), allowed) != MoveResult::kMoved)
      throw std::runtime_error("a page did not come in");
  }
  void move_out(std::size_t index) {
    is_in_ = false;
    if (mapper_->unmap(slot(index), page(index)) != MoveResult::kMoved)
      throw std::runtime_error("a page did not leave");
  }

  // One page is touched at a time.
  void begin_access(PageIndex index, Access access) override {
    if (is_in_) {
      mapper_->allow_writes(page(index), 1);
    } else {
      bring_in(index, access);
    }
  }
  TrapEnd serve_access(PageIndex index, Access access, const std::function<bool()>&) override {
    begin_access(index, access);
    return TrapEnd::kServed;
  }

 private:
  std::byte* slot(std::size_t index) { return regions_.pool + index * kPageBytes; }

  FrameMapper::Regions regions_;
  std::atomic<bool> is_in_{false};
  std::unique_ptr<FrameMapper> mapper_;  ///< Last: it may report faults until its end.
};

/// Counts the time of `verb` alone.
template <typename Verb>
void count(benchmark::State& state, Verb&& verb) {
  const auto start = std::chrono::steady_clock::now();
  verb();
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  state.SetIterationTime(passed.count());
}

void touch(std::byte* page) { *static_cast<volatile std::byte*>(page) = std::byte{2}; }

/// One verb, carried out on one page after the other.
struct Verb {
  const char* name;
  void (*step)(benchmark::State& state, Pages& pages, std::size_t index);
};

constexpr Verb kVerbs[] = {
    {"map to write",
     [](benchmark::State& state, Pages& pages, std::size_t index) {
       count(state, [&] { pages.bring_in(index, Access::kWrite); });
       pages.move_out(index);
     }},
    {"map to read",
     [](benchmark::State& state, Pages& pages, std::size_t index) {
       count(state, [&] { pages.bring_in(index, Access::kRead); });
       pages.move_out(index);
     }},
    {"unmap",
     [](benchmark::State& state, Pages& pages, std::size_t index) {
       pages.bring_in(index, Access::kWrite);
       count(state, [&] { pages.move_out(index); });
     }},
    {"forbid",
     [](benchmark::State& state, Pages& pages, std::size_t index) {
       pages.bring_in(index, Access::kWrite);
       count(state, [&] { pages.mapper().forbid_writes(pages.page(index), 1); });
       pages.move_out(index);
     }},
    {"allow",
     [](benchmark::State& state, Pages& pages, std::size_t index) {
       pages.bring_in(index, Access::kRead);
       count(state, [&] { pages.mapper().allow_writes(pages.page(index), 1); });
       pages.move_out(index);
     }},
    {"fault on empty",
     [](benchmark::State& state, Pages& pages, std::size_t index) {
       count(state, [&] { touch(pages.page(index)); });
       pages.move_out(index);
     }},
    {"fault on closed",
     [](benchmark::State& state, Pages& pages, std::size_t index) {
       pages.bring_in(index, Access::kRead);
       count(state, [&] { touch(pages.page(index)); });
       pages.move_out(index);
     }},
};

void one_page(benchmark::State& state, MapperKind kind, Frames frames, const Verb& verb) {
  Pages pages(kind, frames);
  std::size_t index = 0;
  for (auto _ : state) verb.step(state, pages, index++ % kPages);
}

void forbid_all(benchmark::State& state, MapperKind kind) {
  Pages pages(kind, Frames::kHuge);
  for (std::size_t index = 0; index < kPages; ++index) pages.bring_in(index, Access::kWrite);
  for (auto _ : state) {
    count(state, [&] { pages.mapper().forbid_writes(pages.page(0), kPages); });
    for (std::size_t index = 0; index < kPages; ++index)
      pages.mapper().allow_writes(pages.page(index), 1);
  }
}

/// Answers no fault: none happens.
class NoFaults final : public AccessSink {
 public:
  void begin_access(PageIndex, Access) override { std::abort(); }
  TrapEnd serve_access(PageIndex, Access, const std::function<bool()>&) override { std::abort(); }
};

void make(benchmark::State& state, MapperKind kind) {
  for (auto _ : state) count(state, [&] { make_frame_mapper(kind); });
}

void reserve(benchmark::State& state, MapperKind kind) {
  NoFaults sink;
  for (auto _ : state) {
    const auto mapper = make_frame_mapper(kind);
    count(state, [&] { mapper->reserve(Bytes(std::uint64_t{1} << 40), kPages * kPageSize, sink); });
  }
}

void add(const std::string& name, int iterations, auto&& function) {
  benchmark::RegisterBenchmark(name.c_str(), function)
      ->UseManualTime()
      ->Iterations(iterations)
      ->Unit(benchmark::kMicrosecond);
}

// Names are "mapper|figure|frames", for the script beside this file.
void add_mapper(MapperKind kind) {
  const std::string mapper(name_of(kind));
  for (const Verb& verb : kVerbs)
    for (const auto& [frames, of] : {std::pair(Frames::kHuge, "huge"), {Frames::kSmall, "small"}})
      add(mapper + '|' + verb.name + '|' + of, kIterations,
          [=, frames = frames](benchmark::State& state) { one_page(state, kind, frames, verb); });
  add(mapper + "|forbid 128 pages|huge", kIterations / 10,
      [=](benchmark::State& state) { forbid_all(state, kind); });
  add(mapper + "|make|huge", 20, [=](benchmark::State& state) { make(state, kind); });
  add(mapper + "|reserve 1 TiB|huge", 20, [=](benchmark::State& state) { reserve(state, kind); });
}

}  // namespace
}  // namespace spillway::memory

int main(int argc, char** argv) {
  for (const auto& probe : spillway::memory::probe_mappers())
    if (probe.is_viable) spillway::memory::add_mapper(probe.kind);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
