#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/base/named_values.h"
#include "spillway/device/device.h"
#include "spillway/device/direct_files.h"
#include "spillway/swap/spill_store.h"

namespace spillway::swap {

/// How the bytes travel.
enum class StoreKind {
  kAuto,     ///< io_uring where the system allows it, else posix.
  kIoUring,  ///< io_uring with direct I/O.
  kPosix,    ///< pread and pwrite on a few threads.
  kRam,      ///< Other memory of this process; for tests, and as a bounded host tier.
};

/// All kinds with their names.
std::span<const Named<StoreKind>> store_kinds();

std::string_view name_of(StoreKind kind);          ///< "auto", "io_uring", "posix", "ram"
StoreKind store_kind_from(std::string_view name);  ///< Throws ConfigError with the nearest name.

/// Where spill files go, and how much of it may be taken.
struct SpillDirectory {
  std::string path;
  Bytes limit;  ///< 0: as much as there is.
};

struct SpillStoreOptions {
  std::vector<SpillDirectory> directories;  ///< Used in parallel. Not for kRam.
  StoreKind kind = StoreKind::kAuto;
  Bytes ram_capacity;            ///< For kRam only; required there.
  std::size_t queue_depth = 16;  ///< Transfers in flight per directory.
  bool verify = false;           ///< Checksum every extent on disk, at 2 to 6 % of a CPU.
  Bytes extent_size = Bytes(kExtentBytes);  ///< One page of what is stored; a multiple of 4 KiB.
  Bytes host_tier;  ///< Host memory in front of the directories, in whole pages; 0: none.
  /// Whose pages are stored; null: the CPU's. Those of another device leave through host memory,
  /// which is pinned for it, and of which two pages are the least.
  std::shared_ptr<device::Device> device = nullptr;
  /// Whether that device reads and writes the files itself, where pages are to go past host memory.
  device::DirectFiles direct = device::DirectFiles::kOff;
  DiskObserver* disks = nullptr;  ///< Outlives the store; told of nothing without host memory.
};

struct OpenedSpillStore {
  std::unique_ptr<SpillStore> store;
  std::string description;            ///< "io_uring, direct I/O, /scratch (ext4)"
  std::vector<std::string> warnings;  ///< One sentence each; nothing has been printed.
  std::string why_not_direct;         ///< Each refused file, unless it was kOff; empty: none.
};

/// Opens one unlinked file per directory. A directory that cannot be used is left out with a
/// warning. Throws ConfigError for options that contradict each other, IoError when no directory is
/// left, UnsupportedError when `kind` or `direct` is asked for by name and the system refuses it.
OpenedSpillStore make_spill_store(const SpillStoreOptions& options);

/// Why io_uring cannot be used in this process, with the way to mend it; empty when it can.
std::string why_no_io_uring();

}  // namespace spillway::swap
