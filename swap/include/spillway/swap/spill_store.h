#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/base/own_descriptors.h"
#include "spillway/base/strong_id.h"
#include "spillway/device/device_span.h"

namespace spillway::swap {

/// Size of every extent of a store, where nothing else is asked for: one page of the host.
inline constexpr std::size_t kExtentBytes = std::size_t{2} << 20;

/// What addresses and sizes of transfers are multiples of, as direct I/O wants it.
inline constexpr std::size_t kTransferAlignment = 4096;

/// A place of one page in a store.
using ExtentId = StrongId<struct ExtentTag>;

enum class Direction : std::uint8_t { kWrite, kRead };

/// Where a page is to lie in a store that has host memory before its disks. Others have one place.
enum class StoreTier : std::uint8_t {
  kAny,   ///< Host memory first, and on to the disks when room there gets short.
  kHost,  ///< Host memory, to stay there; the disks while it has no room.
  kFar,   ///< The disks; host memory when they take no more.
};

/// One transfer between tensor memory and an extent. Memory stays valid and, for writes, unchanged
/// until the completion has been reaped, or the completion is discarded by the caller.
struct Transfer {
  Direction direction = Direction::kWrite;
  ExtentId extent;
  std::byte* memory = nullptr;  ///< Of the store's device, aligned to 4096 bytes.
  std::size_t size = 0;         ///< Multiple of 4096, at most one page.
  std::uint64_t tag = 0;        ///< Comes back with the completion.
  /// A read whose memory is the host's, whatever the store's device is: of HostExtents, from an
  /// extent that is not there.
  bool is_into_host = false;
};

/// The outcome of a transfer. `error` is 0 or an errno value; `detail` names file and reason.
struct TransferResult {
  Transfer transfer;
  int error = 0;
  std::string detail;
};

/// Looks on while a store that has host memory before its disks writes and reads these, on the I/O
/// thread. Must be quick, and call neither the store nor its engine.
class DiskObserver {
 public:
  virtual ~DiskObserver() = default;
  /// The extent is one of the whole store; the tag is unique among those under way to its disks.
  virtual void begin_disk_transfer(const Transfer& transfer) = 0;
  virtual void end_disk_transfer(const TransferResult& result) = 0;
};

/// Where the bytes of an extent lie, for a forked child, which has no I/O thread: in a file, or in
/// memory of this process.
struct ExtentPlace {
  int file = -1;  ///< A descriptor of the child; -1: none.
  std::uint64_t offset = 0;
  std::uint64_t device = 0;  ///< What fstat says of the file: the child may have closed the
  std::uint64_t inode = 0;   ///< descriptor, and its number may mean another file by now.
  const std::byte* memory = nullptr;
  bool has_checksum = false;  ///< Then `checksum` of the first `checked_size` bytes holds.
  std::uint32_t checked_size = 0;
  std::uint64_t checksum = 0;
};

/// What lies in host memory before the disks, of a store that has such a tier.
struct HostTierReport {
  Bytes capacity;  ///< 0: the store has none.
  Bytes in_use;
  Bytes peak;     ///< Largest in_use.
  Bytes written;  ///< Of what was written: into host memory.
  Bytes read;     ///< Of what was read: from there.
  Bytes demoted;  ///< Went on from there to the disks, and counts as written only once.
};

/// Extents in host memory, as places where the host may change the bytes. Any thread.
class HostExtents {
 public:
  virtual ~HostExtents() = default;
  enum class Place : std::uint8_t { kThere, kLeaving, kElsewhere };
  virtual Place place_of(ExtentId extent) const = 0;
  /// Where an extent that is there lies, with `size` bytes; it stays there until `let_go`, or until
  /// it is released. Null where it is not there, or has begun to leave.
  virtual std::byte* hold(ExtentId extent, std::size_t size) = 0;
  /// From now on it may go on to the disks.
  virtual void let_go(ExtentId extent) = 0;
  /// Whether more room is to be expected, as pages go on to the disks.
  virtual bool is_making_room() const = 0;
};

/// What a store has done since it was opened, and what it can hold.
struct StoreReport {
  Bytes written;  ///< By transfers that succeeded.
  Bytes read;
  Bytes extents_in_use;
  Bytes extents_peak;                     ///< Largest extents_in_use, summed over directories.
  Bytes capacity;                         ///< Largest total size of extents; 0: unknown.
  std::chrono::nanoseconds busy_time{0};  ///< Time with at least one transfer in flight.
  std::uint64_t retries = 0;
  std::uint64_t checked = 0;    ///< Reads whose checksum was compared, of a store that verifies.
  std::uint64_t wrong = 0;      ///< Pages whose latest read gave other bytes, or another length.
  std::uint64_t recovered = 0;  ///< Pages that were such, and right when they were read again.
  Bytes directly_written;       ///< Of what was written: to disks by the device itself.
  Bytes directly_read;
  std::string refusal;  ///< Why no extent can be reserved: "No space left in /scratch (…)".
  HostTierReport host;

  /// What went to the disks, of a store that has some.
  Bytes written_to_disks() const {
    // Counted one after the other, and asked for in between.
    return written - std::min(written, host.written) + host.demoted;
  }
};

/// What a store says of itself, and those around it say alike.
struct StoreFacts {
  std::size_t queue_depth = 0;  ///< Transfers that it takes at once.
  /// Where the files of the store are open; null: it has none. The I/O thread is best started
  /// there, unless the store has queues of a device, whose driver has its files in the program's
  /// table; and forks are announced there.
  std::shared_ptr<OwnDescriptors> descriptors = nullptr;
  /// Whose memory its transfers move: the host's, or that of a device whose queues copy it.
  device::DeviceId device = {};
  Bytes extent_size = Bytes(kExtentBytes);  ///< Of each extent; no transfer is larger.
  HostExtents* host = nullptr;              ///< Part of the store; null: it has none.
};

/// Holds spilled pages. Extents are reserved and released by any thread; transfers are submitted
/// and reaped by one thread (the I/O thread). The public methods check and count, `do_…` acts.
class SpillStore {
 public:
  virtual ~SpillStore() = default;

  /// An extent to write to, or nothing when the store is full or has failed; `report` then says
  /// why. Any thread.
  std::optional<ExtentId> reserve_extent(StoreTier tier = StoreTier::kAny) {
    return do_reserve_extent(tier);
  }

  /// Gives an extent back; its bytes are lost. No transfer of it may be in flight. Any thread.
  void release_extent(ExtentId extent) { do_release_extent(extent); }

  /// Where an extent lies that was written to its end. Takes no lock and allocates nothing, so that
  /// a forked child may ask, whatever the parent's other threads were doing.
  ExtentPlace locate(ExtentId extent) const { return do_locate(extent); }

  /// Queues a transfer. I/O thread only. Never blocks on I/O; the caller keeps at most
  /// `queue_depth()` transfers in flight.
  void submit(const Transfer& transfer);

  /// Appends finished transfers to `results`; waits for the first one, for `wake`, or for
  /// `timeout`. With nothing in flight only `wake` and the timeout end the wait. I/O thread only.
  void reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout);

  /// Ends a waiting `reap`, or the next one. Any thread.
  void wake() { do_wake(); }

  StoreReport report() const { return do_report(); }  ///< Any thread.

  /// Any thread, and so the parts of it.
  const StoreFacts& facts() const { return facts_; }
  const std::shared_ptr<OwnDescriptors>& descriptors() const { return facts_.descriptors; }
  device::DeviceId device() const { return facts_.device; }
  std::size_t queue_depth() const { return facts_.queue_depth; }
  Bytes extent_size() const { return facts_.extent_size; }

  std::size_t in_flight() const { return in_flight_; }  ///< I/O thread only.

 protected:
  explicit SpillStore(StoreFacts facts) : facts_(std::move(facts)) {}

  /// A report with `written`, `read` and `busy_time` of what passed through this object. Any
  /// thread.
  StoreReport tally() const;

 private:
  virtual std::optional<ExtentId> do_reserve_extent(StoreTier tier) = 0;
  virtual void do_release_extent(ExtentId extent) = 0;
  virtual void do_submit(const Transfer& transfer) = 0;
  virtual void do_reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) = 0;
  virtual void do_wake() = 0;
  virtual ExtentPlace do_locate(ExtentId extent) const = 0;
  virtual StoreReport do_report() const = 0;

  const StoreFacts facts_;
  std::size_t in_flight_ = 0;
  std::atomic<std::uint64_t> written_bytes_{0};
  std::atomic<std::uint64_t> read_bytes_{0};
  std::atomic<std::int64_t> busy_ns_{0};
  std::atomic<std::int64_t> busy_since_ns_{0};  ///< On the steady clock; 0: idle.
};

}  // namespace spillway::swap
