#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "spillway/base/assert.h"
#include "spillway/base/bytes.h"
#include "spillway/device/device_span.h"
#include "spillway/memory/address_arena.h"
#include "spillway/memory/frame_pool.h"
#include "spillway/memory/page_access.h"

namespace spillway::memory {

/// Write protection, and the reports of accesses that it goes with. Not every memory has it: a GPU
/// loses its context where a kernel touches what is not there, and tells nobody of writes.
class AccessControl {
 public:
  /// Write-protects `pages` present pages from `first`: when it returns, a write is reported before
  /// it happens.
  virtual void forbid_writes(PageIndex first, std::uint32_t pages) = 0;
  /// Makes present pages writable and wakes whoever waits to write them.
  virtual void allow_writes(PageIndex first, std::uint32_t pages) = 0;
  /// Lets threads that wait for `page` try again; for those that came too late for a `map`.
  virtual void wake(PageIndex page) = 0;

 protected:
  ~AccessControl() = default;
};

/// What a child after fork(2) can do with pages that it inherits. Not in the process that forked.
/// No lock is taken and nothing is allocated, so a signal handler may call it.
class InheritedPages {
 public:
  /// Ends every access to the pages with a signal, until one of the calls below fills them.
  virtual void seal(PageIndex first, std::uint32_t pages) = 0;
  /// Makes present pages writable. Pages that the parent had write-protected need it.
  virtual void make_writable(PageIndex first, std::uint32_t pages) = 0;
  /// Lets a page show the bytes of `file` from `offset` on; writes stay private to the child.
  /// False, with nothing changed, when the kernel refuses.
  virtual bool show_file(PageIndex page, int file, std::uint64_t offset) = 0;
  /// Memory of one page to fill for `place`; null when the kernel has none.
  virtual std::byte* stage() = 0;
  /// Puts staged memory under a sealed page at once: another thread sees all of its bytes or none.
  /// False with errno when the kernel refuses.
  virtual bool place(PageIndex page, std::byte* staged) = 0;
  /// From now on the sink serves accesses to sealed pages; `cannot_read` ends the process where a
  /// file that is shown cannot be read.
  virtual void report_accesses(void (*cannot_read)()) = 0;

 protected:
  ~InheritedPages() = default;
};

/// Frames that change their page while work of the device goes by the address of the old one. For
/// memory whose users tell nobody when they are done.
class FramesInUse {
 public:
  /// Moves the frame of `from` beneath the empty page `to`. It lies beneath `from` as well, for
  /// that work alone, until `end_move`.
  virtual void move(PageIndex to, PageIndex from) = 0;
  /// That work is done: `from` is empty.
  virtual void end_move(PageIndex from) = 0;

 protected:
  ~FramesInUse() = default;
};

/// The memory of one device in pages and frames. A *page* is a piece of its addresses, which a
/// storage keeps for life; a *frame* is as much physical memory, which lies beneath a page or rests
/// in a slot of the pool. Pages and slots are numbers: only queues and stores of the device get
/// addresses, by `span_of`. Thread-safe, except that calls for the same page or slot must not
/// overlap.
class PageMemory : public FrameSource {
 public:
  /// `page_size`: a power of two, and a multiple of what transfers are aligned to.
  PageMemory(device::DeviceId device, Bytes page_size) : device_(device), page_size_(page_size) {}
  PageMemory(const PageMemory&) = delete;
  PageMemory& operator=(const PageMemory&) = delete;

  device::DeviceId device() const { return device_; }
  Bytes page_size() const { return page_size_; }

  /// Reserves addresses for so many pages and slots, all of them empty. Throws UnsupportedError
  /// with the limit that refuses it. Once. `sink` may be called until this is destroyed.
  void reserve(std::size_t pages, std::size_t frames, AccessSink& sink) {
    SPILLWAY_ASSERT(begin_.load() == nullptr);
    begin_.store(do_reserve(pages, frames, sink), std::memory_order_release);
  }

  /// Where a page lies, as programs of the device see it.
  device::DeviceSpan span_of(PageIndex page) const {
    return {device_,
            begin_.load(std::memory_order_acquire) + std::uint64_t{page} * page_size_.count(),
            page_size_};
  }
  /// Where the frame in a slot can be filled before it lies beneath a page. It is that frame from
  /// now on that `map` moves.
  virtual device::DeviceSpan span_of(SlotId slot) = 0;

  /// Gets for `pages` pages from `first` whatever the system might refuse later. Throws
  /// UnsupportedError with the limit that refuses it; nothing has changed then.
  virtual void prepare(PageIndex /*first*/, std::uint32_t /*pages*/) {}

  /// Does beforehand what takes long in the `map` of the empty `page` with the full frame of
  /// `slot`, which follows, unless the page ends first: for callers that hold locks in `map`, and
  /// none here.
  virtual void prepare_map(PageIndex /*page*/, SlotId /*slot*/) {}

  /// Moves the frame of `slot` beneath the empty `page`, and wakes whoever waits for that. With
  /// `Access::kRead` the page arrives write-protected, where there is protection.
  virtual void map(PageIndex page, SlotId slot, Access allowed) = 0;

  /// Moves the frame of `page` to the empty `slot`. Nothing that uses the page may be under way,
  /// but for accesses that are reported. See MoveResult for frames that somebody holds.
  virtual MoveResult unmap(SlotId slot, PageIndex page) = 0;

  /// The same where mapping takes long: the page has ended, and the frame may lie beneath it still,
  /// until it is needed elsewhere. Whoever touches the page then reads what others have written.
  virtual MoveResult unmap_ended(SlotId slot, PageIndex page) { return unmap(slot, page); }
  /// Gives an empty page a frame whose bytes mean nothing, so another one at rest may change places
  /// with that of `slot`: the one that the page had before it ended.
  virtual void map_fresh(PageIndex page, SlotId slot) { map(page, slot, Access::kWrite); }

  /// For a page whose `unmap` said kBusy: copies its bytes into the frame of `slot`.
  virtual void copy(SlotId slot, PageIndex page) = 0;
  /// For a page whose `unmap` said kBusy: it is empty from then on, its frame and its bytes are
  /// gone. Whoever holds the frame ends harmlessly.
  virtual void drop(PageIndex page) = 0;

  /// None: accesses and writes are reported by nobody, so pages that are in use have to be held.
  virtual AccessControl* access_control() { return nullptr; }
  /// None: `unmap` and `map`, once the work is done.
  virtual FramesInUse* frames_in_use() { return nullptr; }
  /// None: a forked child cannot use this memory.
  virtual InheritedPages* inherited_pages() { return nullptr; }

 private:
  /// Returns where the first page lies.
  virtual std::byte* do_reserve(std::size_t pages, std::size_t frames, AccessSink& sink) = 0;

  const device::DeviceId device_;
  const Bytes page_size_;
  /// Atomic, as threads that report accesses start before it is known.
  std::atomic<std::byte*> begin_{nullptr};
};

}  // namespace spillway::memory
