#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "page_table.h"
#include "spillway/swap/swap_engine.h"

namespace spillway::swap {

/// Pages that are to come in when there is room.
struct Fetch {
  RangePart part;
  OpClock needed;  ///< From then on it comes too late, and for the use behind it too early.
  OnFetch copy;
};

/// A touch of a page that belongs to nobody.
struct Stray {
  memory::PageIndex page = 0;
  std::uint64_t releases = 0;
  std::uint32_t reports = 0;
};

/// A page that comes from a disk into host memory.
struct HostRead {
  memory::PageIndex page = 0;
  ExtentId to;  ///< Held there.
  std::byte* memory = nullptr;
};

struct HostReads {
  std::deque<HostRead> waiting;  ///< For the store's queue.
  std::vector<HostRead> under_way;
  bool want_room = false;  ///< Somebody waits for pages to go on to the disks, which tell nobody.
};

/// An access that waits for its page.
struct OpenFault {
  memory::PageIndex index;
  TimePoint start;
};

/// Accesses that nobody announced.
struct FaultBook {
  std::vector<OpenFault> open;  ///< That wait for their page.
  std::string failure;          ///< Why a page that the program touches cannot come.
  std::optional<TimePoint> unserved_since;
  TimePoint next_attempt;  ///< At what the kernel keeps, since then.
  Stray stray;             ///< The latest touch of a page that belongs to nobody.
  std::uint64_t releases = 0;
};

/// The latest page that could not be read, of so many.
struct ReadFailure {
  memory::PageIndex page = 0;
  std::uint64_t count = 0;  ///< Of all failed reads, this one included.
  std::string detail;
};

/// The latest dropped range that could not be brought back, of so many.
struct DropFailure {
  StorageId storage;
  std::uint64_t count = 0;
  std::string reason;
};

/// Dropped and guarded storages that somebody waits for.
struct DropBook {
  std::deque<StorageId> wanted;
  bool has_ended = false;
  DropFailure failure;
};

/// What the engine remembers beside storages and their pages, by the job that it belongs to. Under
/// the engine's mutex, but for what is atomic.
struct EngineBooks {
  // Counting: accounts.cpp
  std::atomic<std::uint64_t> small_bytes_{0};    ///< Of blocks on the heap.
  std::atomic<std::uint64_t> small_granted_{0};  ///< Taken from the frames for those.
  SwapStatistics counts_;
  Bytes latest_peak_;  ///< Resident, since take_peak.

  // Holding and touching: pins.cpp
  OpClock now_op_ = 0;
  std::uint64_t touch_clock_ = 0;
  std::atomic<bool> pressure_{false};
  std::size_t active_sets_ = 0;
  std::vector<const PinSet*> kernel_sets_;                  ///< Those of them that the kernel uses.
  std::vector<const PinSet*> paged_through_;                ///< Those of operators that do not fit.
  std::vector<ResidencyOrders::WriteOut> late_write_outs_;  ///< They wait for late uses to end.

  // Waiting for room: room_wait.cpp
  std::condition_variable changed_;      ///< Frames, pins or page states changed.
  std::size_t frames_wanted_ = 0;        ///< By allocations that wait.
  const void* first_in_line_ = nullptr;  ///< The RoomWait before which others stand back.
  std::size_t waiting_sets_ = 0;
  std::size_t waiters_ = 0;
  std::uint64_t wakes_ = 0;  ///< Counts whatever may have ended a wait.

  // Leaving: eviction.cpp
  std::size_t leaving_ = 0;     ///< Pages that will give their frame back.
  std::uint64_t refusals_ = 0;  ///< Counts pages that were to leave and that the kernel kept.
  std::minstd_rand random_;     ///< Equal runs choose alike.
  bool moves_ahead_ = true;
  std::size_t extents_held_ = 0;  ///< Reserved and not released.

  // Coming and going: transfers.cpp
  std::deque<memory::PageIndex> fault_reads_;
  std::deque<memory::PageIndex> demand_reads_;
  std::deque<memory::PageIndex> writes_;
  std::deque<Fetch> fetches_;
  std::uint32_t fetch_reserve_ = 0;  ///< Pages that fetches leave free for what operators make.
  std::uint32_t arrivals_ = 0;
  std::size_t reading_ = 0;
  std::size_t writing_ = 0;
  std::size_t free_transfers_ = 0;  ///< Room in the store's queue.
  std::size_t awaited_reads_ = 0;   ///< The first of the batch that is being collected.
  bool write_turn_ = true;
  bool transfers_idle_ = false;  ///< The I/O thread sleeps or is about to.
  bool stopping_ = false;
  ReadFailure read_failure_;
  std::string store_failure_;  ///< Why nothing more can be written; empty: it can.

  // What nobody announced, what is nowhere, what the host works on, and children of fork(2):
  // faults.cpp, drops.cpp, way_to_host.cpp, forks.cpp
  FaultBook faults_;
  DropBook drops_;
  std::condition_variable drop_wanted_;
  HostReads host_reads_;
  std::atomic<bool> off_{false};  ///< In a forked child.
  bool is_child_known_ = false;   ///< In a child: the parent keeps its extents.
};

}  // namespace spillway::swap
