#pragma once

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "spillway/device/device.h"
#include "spillway/memory/page_memory.h"

namespace spillway::memory {

/// A memory under test.
struct PageMemoryUnderTest {
  std::unique_ptr<PageMemory> memory;
  std::shared_ptr<device::Device> device;  ///< Null: the host's own.
};
struct PageMemoryKind {
  std::string name;
  std::function<std::string()> objection;  ///< Why it cannot be tested here; empty: it can.
  std::function<PageMemoryUnderTest()> make;
  bool is_ever_busy = false;  ///< It may not be able to move a frame that is locked.
};

/// Those of the program.
std::vector<PageMemoryKind> page_memory_kinds();

/// Has each access that is reported allowed: with the frame of slot 0 beneath an empty page.
class AllowingSink final : public AccessSink {
 public:
  struct Report {
    PageIndex page = 0;
    Access access = Access::kRead;
    bool operator==(const Report&) const = default;
  };

  /// Before accesses. An access in a signal handler allocates nothing.
  explicit AllowingSink(PageMemory& memory) : memory_(memory) { reports_.reserve(64); }
  void begin_access(PageIndex page, Access access) override;
  TrapEnd serve_access(PageIndex page, Access access, const std::function<bool()>&) override {
    begin_access(page, access);
    return TrapEnd::kServed;
  }
  /// The page is there, as if this had mapped it.
  void note_mapped(PageIndex page, Access allowed);
  /// Of accesses that were not allowed already. A kernel may report one more than once.
  std::vector<Report> reports();

 private:
  enum class State : std::uint8_t { kEmpty, kReadable, kWritable };
  PageMemory& memory_;
  std::mutex mutex_;
  std::array<State, 8> states_{};
  std::vector<Report> reports_;
};

/// What every memory must do that is moved in pages and frames. What it may lack is skipped.
class PageMemoryConformance : public ::testing::TestWithParam<PageMemoryKind> {
 protected:
  static constexpr std::size_t kPages = 8;
  static constexpr std::size_t kSlots = 4;

  void SetUp() override;

  void TearDown() override { queue_.reset(); }

  /// Sets the first and the last byte of a page or frame, on a device by a copy that has ended.
  void set(device::DeviceSpan span, int value);
  bool holds(device::DeviceSpan span, int value);
  /// Gives a slot a frame whose first and last byte is `value`.
  void fill(std::uint32_t slot, int value);
  /// Of the host's own memory.
  std::byte& first(PageIndex page) const { return memory().span_of(page).data[0]; }
  std::byte& last(PageIndex page) const { return memory().span_of(page).data[size_ - 1]; }
  PageMemory& memory() const { return *tested_.memory; }

  std::unique_ptr<AllowingSink> sink_;
  PageMemoryUnderTest tested_;  ///< Later: it may report until its end.
  std::size_t size_ = 0;        ///< Of a page.

 private:
  void copy(device::DeviceSpan to, device::DeviceSpan from);
  std::unique_ptr<device::Queue> queue_;  ///< Null: the host's own.
};

}  // namespace spillway::memory
