#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/base/clock.h"
#include "spillway/base/median.h"
#include "spillway/swap/slowdown_probe.h"
#include "spillway/swap/spill_store_factory.h"

namespace spillway::swap {

/// Bytes per second at one block size and queue depth.
struct DiskPoint {
  Bytes block;
  std::size_t queue_depth = 0;
  Spread write;  ///< Into blocks that were written before.
  Spread read;
  Spread mixed_write;  ///< The share of the writes while as many bytes are read.
  Spread mixed_read;
};

/// What was found out about a directory. `first_write` is the rate of the very first pass, into
/// space that was reserved but never written.
struct DiskProbe {
  std::string description;  ///< "io_uring, direct I/O, /scratch (ext4)"
  std::vector<std::string> warnings;
  Bytes file_size;
  double first_write_bytes_per_second = 0.0;
  std::vector<DiskPoint> points;  ///< By block size, then depth, as asked for.

  /// What each moved byte costs computations beside it; none when it was not asked for, or when the
  /// measurements disagree.
  std::optional<double> slowdown_seconds_per_byte{};

  /// What a transfer takes beyond its bytes where nothing else is under way: the time of one alone,
  /// less what it adds to many. None without a depth of 1 and a deeper one.
  std::optional<double> fixed_seconds(Spread DiskPoint::*direction) const;

  /// The entry with the best sum of mixed rates, which is what a training step asks of a disk;
  /// null when nothing was measured.
  const DiskPoint* best() const;
};

/// How far a measurement has come; `passes` of `passes_total`, and what runs now.
struct DiskProbeProgress {
  std::size_t passes = 0;
  std::size_t passes_total = 0;
  std::string current;  ///< "read, 2 MiB blocks, depth 16"
};

struct DiskProbeOptions {
  Bytes file_size = 1_GiB;  ///< Of the unlinked file that is written and read.
  std::vector<Bytes> block_sizes = {512_KiB, 1_MiB, 2_MiB};  ///< Multiples of 4 KiB, at most 2 MiB.
  std::vector<std::size_t> queue_depths = {1, 4, 16};
  std::size_t repetitions = 3;
  Duration longest_pass = std::chrono::seconds(2);  ///< A slow disk moves less, not longer.
  StoreKind kind = StoreKind::kAuto;
  std::function<void(const DiskProbeProgress&)> progress;  ///< Called before each pass.
  /// Makes what is to be slowed down, last of all; empty: that is not measured.
  std::function<std::unique_ptr<Workload>()> workload{};
  std::size_t slowdowns = 9;  ///< So often.
};

/// Measures through the same store that a run would use. Takes about
/// `3 * repetitions * block sizes * depths` passes over the file. Throws ConfigError for impossible
/// options and IoError when the directory cannot hold the file or a transfer fails.
DiskProbe measure_directory(const std::string& directory, const DiskProbeOptions& options);

/// The same on an open store, for rates of several directories together; `clock` times the passes.
/// Extents of `file_size` are reserved and released again.
DiskProbe measure_store(SpillStore& store, const DiskProbeOptions& options, const Clock& clock);

}  // namespace spillway::swap
