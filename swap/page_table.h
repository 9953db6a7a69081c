#pragma once

#include <cstdint>
#include <vector>

#include "spillway/memory/address_arena.h"
#include "spillway/memory/frame_pool.h"
#include "spillway/swap/residency.h"
#include "spillway/swap/spill_store.h"

namespace spillway::swap {

/// Where the bytes of a page are. The picture of all moves is in swap/README.md.
enum class PageState : std::uint8_t {
  kOut,          ///< Not in memory; its `Absence` says why.
  kReadQueued,   ///< Somebody waits for it; it has no frame yet.
  kReading,      ///< Being read into a frame of the pool.
  kResident,     ///< Under its address.
  kWriteQueued,  ///< Resident, to be written.
  kWriting,      ///< Resident, write-protected, being written.
  kOnHost,       ///< Out; the host works on its bytes, or they are on their way to where it may.
};

/// Why a page is out, which says what a wait for it starts.
enum class Absence : std::uint8_t {
  kUnfilled,  ///< Nobody has written to it yet: it gets a frame and no read.
  kStored,    ///< Its bytes are in its extent, and are read.
  kDropped,   ///< Its bytes are nowhere: whoever recomputes them is told.
};

inline bool has_bytes_in_memory(PageState state) {
  return state == PageState::kResident || state == PageState::kWriteQueued ||
         state == PageState::kWriting;
}

/// So often a page that the kernel keeps is tried in a row: each attempt may cost a write.
inline constexpr std::uint8_t kRefusalsMax = 3;

struct Page {
  PageState state = PageState::kOut;
  bool dirty = false;                    ///< The extent, if any, does not hold the bytes.
  bool write_protected = false;          ///< Writes are reported before they happen.
  bool leaving = false;                  ///< Goes out when its write has ended.
  bool forced = false;                   ///< Goes out even while pinned.
  bool cancelled = false;                ///< Was written to while it was being written out.
  bool writable_on_arrival : 1 = false;  ///< Somebody waits to write it, or no copy is wanted.
  bool moved_on : 1 = false;  ///< Out: a device still goes by its address, see memory::FramesInUse.
  std::uint8_t failed_writes : 4 = 0;
  std::uint8_t refusals : 2 = 0;  ///< By the kernel, to let it leave; see forget_refusals_locked.
  StoreTier tier : 2 = StoreTier::kAny;  ///< Where it goes when it is written.
  std::uint32_t arrival = 0;             ///< Counts up with every page that becomes resident.
  std::uint32_t pins = 0;          ///< Of operators that use a part of the range with this page.
  std::uint32_t touched = 0;       ///< Low bits of the touch clock; kept for ranges used in parts.
  ExtentId extent;                 ///< None while `kOut`: the page was dropped, or never filled.
  std::uint32_t extent_since = 0;  ///< When the extent was reserved, in the order of forks.
  memory::SlotId slot;             ///< The frame while reading.
  std::uint32_t range = 0;         ///< Slot of its storage in the table of ranges.
};
static_assert(sizeof(Page) == 36);

struct Range {
  StorageId id;  ///< Of the storage that has this slot, or had it last.
  memory::PageIndex first = 0;
  std::uint32_t pages = 0;
  std::uint32_t pins = 0;           ///< Of operators that use all of it.
  std::uint32_t partial_pins = 0;   ///< Of operators that use some of its pages, see Page::pins.
  std::uint32_t in_flight = 0;      ///< Pages being read or written.
  std::uint32_t late_uses = 0;      ///< By a device, after the operator has let go; see LateUses.
  const void* late_line = nullptr;  ///< Of all these; null: they are of several, or have no order.
  bool is_live = false;
  bool is_dying = false;  ///< Released; ends with its last transfer or late use.
  bool faulted = false;   ///< Ever touched past operators: arrives dirty, writable unless guarded.
  /// Its bytes are nowhere until it is recomputed, or will be when its late uses have ended.
  bool is_dropped = false;
  bool is_guarded = false;  ///< All pages in memory are write-protected: a write has to be allowed.
  bool is_write_awaited = false;  ///< Guarded, and somebody waits to write.
  bool in_parts = false;  ///< Was ever used in parts: each page has its own age and next use.
  Bytes size;
  OpClock next_use = kUnknownUse;
  std::uint64_t last_touch = 0;
  std::vector<OpClock> next_uses;  ///< Per page, once a part was given its own; else empty.

  void add_late_use(const device::Event& until) {
    const void* const line = until.state()->line();
    late_line = late_uses == 0 || late_line == line ? line : nullptr;
    ++late_uses;
  }
  OpClock next_use_of(std::size_t i) const { return next_uses.empty() ? next_use : next_uses[i]; }
};

}  // namespace spillway::swap
