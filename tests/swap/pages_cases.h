#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mapper_cases.h"
#include "spillway/memory/host_pages.h"
#include "spillway/swap/swap_engine.h"
#include "store/ram/factory.h"
#include "support/host_memory_before.h"

namespace spillway::swap {

/// Pages that the engine's suite runs on: those of the host under one kind of mapper, or, none,
/// those of a device with addresses of its own and no reports of accesses.
using PagesCase = std::optional<memory::MapperKind>;

// Each program of these cases says what it runs them on.
std::vector<PagesCase> all_pages();
std::string why_no_device();  ///< Empty: there is one.
std::shared_ptr<device::Device> open_paged_device();
std::unique_ptr<memory::PageMemory> pages_of(const std::shared_ptr<device::Device>& device);

inline std::string pages_case(const testing::TestParamInfo<PagesCase>& pages) {
  return pages.param ? mapper_case({*pages.param, pages.index}) : "device";
}

/// The pages of the case that runs, and how a trainer on them reads and writes.
struct RunningPages {
  PagesCase pages;
  Bytes page_size = memory::kPageSize;
  std::shared_ptr<device::Device> device;  ///< Null on the host.
  std::unique_ptr<device::Queue> queue;
  SwapEngine* engine = nullptr;  ///< The latest one on the device.
};
inline RunningPages running;

inline Bytes page_size() { return running.page_size; }
inline std::size_t page_bytes() { return running.page_size.count(); }

/// A word of tensor memory. On the device each use of it is an operator: it holds the page, gives
/// the copy to a queue, and lets go of the page as of the end of that copy.
class Word {
 public:
  explicit Word(std::byte* address) : address_(address) {}
  Word(const Word&) = default;
  Word& operator=(const Word&) = delete;  ///< It would not be the bytes.
  operator std::uint64_t() const {        // NOLINT: stands for the word.
    if (!running.device) return *reinterpret_cast<const std::uint64_t*>(address_);
    std::uint64_t value = 0;
    const device::DeviceSpan here = device::host_span_of(value);
    const device::Outcome outcome =
        operate(false, [&](device::DeviceSpan word) { running.queue->copy(here, word); }).wait();
    EXPECT_EQ(outcome.error, "");
    return value;
  }
  Word& operator=(std::uint64_t value) {
    if (!running.device) {
      *reinterpret_cast<std::uint64_t*>(address_) = value;
      return *this;
    }
    const auto kept = std::make_shared<std::uint64_t>(value);
    operate(true, [&](device::DeviceSpan word) {
      auto* const bytes = reinterpret_cast<std::byte*>(kept.get());
      running.queue->copy(word, device::host_span(bytes, Bytes(sizeof value)));
      running.queue->run([kept] { return device::Outcome{}; });
    });
    return *this;
  }
  Word& operator+=(std::uint64_t more) { return *this = *this + more; }
  std::uint64_t operator++() { return *this += 1; }

 private:
  device::Event operate(bool writes, const std::function<void(device::DeviceSpan)>& act) const {
    SwapEngine& engine = *running.engine;
    PinSet pins;
    RangeUse use = engine.find(address_, Bytes(sizeof(std::uint64_t)));
    use.writes = writes;
    engine.pin(pins, {&use, 1});
    act({running.device->id(), address_, Bytes(sizeof(std::uint64_t))});
    const device::Event done = running.queue->record();
    engine.unpin(pins, nullptr, done);
    return done;
  }

  std::byte* address_;
};

inline Word word(std::byte* memory, std::size_t page) { return Word(memory + page * page_bytes()); }

/// Waits until the device has done what it was given; what it used may leave then.
inline void finish_operators() {
  if (running.device) running.queue->record().wait();
}

/// A store in memory for so many pages of the case that runs.
inline std::unique_ptr<SpillStore> ram_store(std::size_t pages, std::size_t depth = 16) {
  const auto notifier = std::make_shared<Notifier>();
  const auto memory = [&](std::size_t count) {
    return make_ram_store(Bytes(kExtentBytes * count), depth, notifier);
  };
  if (!running.device) return memory(pages);
  // One slab holds a page, the other one stages what goes past it.
  return host_memory_before(memory(pages - 1), 2, notifier, running.device);
}

/// Cases that run on one kind of pages each, and are skipped with the reason where those do not
/// work.
class PagesTest : public testing::TestWithParam<PagesCase> {
 protected:
  void SetUp() override {
    running.pages = GetParam();
    if (!GetParam()) {
      if (const std::string why = why_no_device(); !why.empty()) GTEST_SKIP() << why;
      running.device = open_paged_device();
      running.page_size = pages_of(running.device)->page_size();
      running.queue = running.device->make_queue("trainer");
      return;
    }
    for (const memory::MapperProbe& probe : memory::probe_mappers())
      if (probe.kind == *GetParam() && !probe.is_viable) GTEST_SKIP() << probe.reason;
  }
  void TearDown() override {
    running.queue.reset();
    running = {};
  }

  static std::unique_ptr<SwapEngine> make_engine(const SwapEngineOptions& options,
                                                 std::unique_ptr<SpillStore> store,
                                                 const Clock& clock) {
    std::unique_ptr<memory::PageMemory> pages;
    if (running.device) {
      pages = pages_of(running.device);
    } else {
      pages = memory::make_host_pages(*running.pages);
    }
    auto made = std::make_unique<SwapEngine>(options, std::move(pages), std::move(store), clock);
    running.engine = made.get();
    return made;
  }

  static bool reports_accesses() { return running.pages.has_value(); }
};

}  // namespace spillway::swap

/// Skips a case on pages whose accesses nobody reports.
#define SPILLWAY_NEEDS_REPORTS()                                                                  \
  if (!reports_accesses())                                                                        \
  GTEST_SKIP() << "nobody reports accesses to pages of this device that are out: what operators " \
                  "hold cannot leave, and the host cannot touch it"
