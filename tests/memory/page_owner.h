#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "spillway/memory/frame_mapper.h"
#include "spillway/memory/frame_pool.h"
#include "spillway/memory/host_pages.h"

namespace spillway::memory {

struct Fault {
  std::size_t page = 0;
  Access access = Access::kRead;
  bool operator==(const Fault&) const = default;
};

/// The smallest owner of residency states that a mapper can serve: every page has one frame for
/// life, which lies either under the page or in a pool slot. Serves every fault unless told
/// otherwise. All under one mutex, under which no page is touched.
class PageOwner final : public AccessSink {
 public:
  PageOwner(std::unique_ptr<FrameMapper> mapper, std::size_t pages, std::size_t slots);
  std::byte* page(std::size_t index) { return regions_.arena + index * kPageBytes; }
  std::byte* frame(std::size_t index);  ///< Of a page that is out.
  FrameMapper& mapper() { return *mapper_; }
  FramePool& pool() { return *pool_; }
  std::byte* in_slot(SlotId slot) const { return frames_.address(slot); }

  /// Bring in, move out, close, open; each does nothing when it is so already.
  void bring_in(std::size_t index, Access allowed);
  MoveResult move_out(std::size_t index);
  void close_page(std::size_t index);
  void open_page(std::size_t index);
  /// Destroys the contents of a page that is in, and gives it a new frame.
  void drop(std::size_t index);
  bool is_in(std::size_t index);
  bool is_open(std::size_t index);

  /// Faults that had to be served since the last call, the first 65536 of them. A kernel may report
  /// one touch more than once.
  std::vector<Fault> take_faults();
  /// Asks `question` before serving a fault, without the mutex; false leaves it unserved. What it
  /// refers to must outlive the owner. Not while faults may happen.
  void ask_before_serving(std::function<bool(Fault)> question);

  void begin_access(PageIndex index, Access access) override;
  TrapEnd serve_access(PageIndex index, Access access, const std::function<bool()>&) override {
    begin_access(index, access);
    return TrapEnd::kServed;
  }

 private:
  enum class State { kOut, kOpen, kClosed };
  struct Page {
    State state = State::kOut;
    SlotId slot;
  };
  void bring_in_locked(Page& page, std::byte* address, Access allowed);

  FrameMapper* mapper_;
  FrameMapper::Regions regions_;
  HostFrameSource frames_;
  std::optional<FramePool> pool_;
  std::mutex mutex_;
  std::vector<Page> pages_;
  std::vector<Fault> faults_;
  std::function<bool(Fault)> question_;
  /// Last: it reports faults until its end, and these use all of the above.
  std::unique_ptr<FrameMapper> owned_mapper_;
};

/// Bytes in huge pages of the kernel's mappings that lie between two addresses.
std::size_t huge_bytes(const std::byte* begin, const std::byte* end);

/// The kernel's mappings that have a part between two addresses.
std::size_t mappings_between(const std::byte* begin, const std::byte* end);

}  // namespace spillway::memory
