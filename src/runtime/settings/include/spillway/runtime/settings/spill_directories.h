#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/profile/transfer_rates.h"
#include "spillway/runtime/settings/settings.h"
#include "spillway/topology/directory.h"
#include "spillway/topology/disk_rates.h"

namespace spillway::runtime {

/// A directory that can be used.
struct ResolvedDirectory {
  topology::Directory facts;
  Bytes limit;                                 ///< As given by the user; 0: none.
  std::optional<topology::DiskRate> measured;  ///< By `spillway bench-io`.
  std::vector<std::string> warnings;           ///< About this directory alone.
};

/// "/scratch (ext4 on nvme0n1), 35 GiB free, measured: write 1.50 GB/s, read 2.10 GB/s"
std::string describe(const ResolvedDirectory& directory);

struct ResolvedDirectories {
  std::vector<ResolvedDirectory> directories;
  unsigned sharers = 1;  ///< Processes of the job that spill to them.
  std::string shortage;  ///< Warning that all together hold less than the budget, or empty.
  std::vector<std::string> warnings;  ///< All there are: of each directory, and of the whole.

  /// What is left to each sharer of the sum over the directories, when every one was measured; on
  /// the same disk it counts once.
  std::optional<TransferRate> read_rate() const;
  std::optional<TransferRate> write_rate() const;

  /// Share of either rate that is left while both directions are busy, in (0, 1].
  std::optional<double> duplex_share() const;

  /// All that plans reckon with; where it was not measured everywhere, `otherwise`, of whose rates
  /// each sharer has a part.
  profile::TransferRates rates(profile::TransferRates otherwise) const;
  /// Which of them are taken from `otherwise`: "duplex share, slowdown"; empty: none.
  std::string assumed() const;
  /// Rate of one processor, for the checksums of `verify`.
  std::optional<TransferRate> checksum_rate() const;
};

/// Seconds that a checked byte costs operators on so many processors; a guess if not measured.
double checksum_seconds_per_byte(std::optional<TransferRate> of_processor, double processors);

/// How the resolver sees the machine; tests give their own.
struct DirectorySurroundings {
  std::function<topology::Directory(const std::string&)> inspect;
  std::vector<std::string> candidates;  ///< Where to spill when the user names nothing, best first.
  topology::DiskRates rates;
  std::vector<std::string> warnings;  ///< Files of rates that could not be read.
};

/// The real machine: $TMPDIR, /var/tmp, /tmp and the working directory. No rates.
DirectorySurroundings surroundings_without_rates();

/// The same with the rates that the user named, which must be readable (IoError, ConfigError), or
/// else those in the default place, which may be missing.
DirectorySurroundings real_surroundings(const Settings& settings);

/// Checks the directories that the user named, or picks the roomiest candidate that is no RAM disk.
/// Throws ConfigError for one that is missing, no directory, or not writable, and when there is
/// none at all. Warns of RAM disks, network file systems, rotating disks and too little space for
/// `sharers`, the processes of the same job on this machine, which all spill there. Gives nothing
/// for the RAM store.
ResolvedDirectories resolve_spill_directories(const Settings& settings, Bytes budget,
                                              const DirectorySurroundings& surroundings,
                                              unsigned sharers = launched_ranks_here());

}  // namespace spillway::runtime
