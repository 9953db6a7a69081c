#pragma once

#include <optional>
#include <string>
#include <vector>

#include "spillway/base/transfer_rate.h"
#include "spillway/topology/link_rate.h"

namespace spillway::topology {

enum class Load { kRead, kWrite, kBoth };

/// One measured point.
struct DiskSample {
  Load load = Load::kRead;
  Bytes block;
  unsigned depth = 0;  ///< Transfers in flight.
  TransferRate read;
  TransferRate write;
};

/// Measurements of one directory.
struct DiskRate {
  std::string directory;
  std::string device;       ///< Name of the block device, or empty.
  std::string mount_point;  ///< Other directories below it share the disk.
  std::string measured_at;  ///< ISO 8601, UTC.
  TransferRate read;        ///< At the best block size and depth, reading alone.
  TransferRate write;       ///< Writing alone.
  TransferRate both;        ///< Sum while both run; none when not measured.
  /// Seconds of a transfer on the idle disk beyond its bytes.
  std::optional<double> write_fixed_seconds{};
  std::optional<double> read_fixed_seconds{};
  /// What a moved byte costs computations beside it, and how fast one processor checks bytes.
  std::optional<double> interference_seconds_per_byte{};
  std::optional<TransferRate> checksum{};
  std::vector<DiskSample> samples{};
};

/// The measured disks of a machine, and the links of its GPUs, kept in a JSON file that `spillway
/// bench-io` writes and runs read.
class DiskRates {
 public:
  /// Throws IoError for a file that is missing or unreadable, ConfigError with path and place for a
  /// broken one, or one of a newer format.
  static DiskRates load(const std::string& path);

  /// The same, but a file that does not exist gives no rates.
  static DiskRates load_if_there(const std::string& path);

  /// Replaces the file at once, or leaves it as it was. Makes its folder. Throws IoError.
  void save(const std::string& path) const;

  /// Replaces what was known of that directory.
  void record(DiskRate rate);

  /// The rate of the directory itself, else of one on the same mount point.
  const DiskRate* find(const std::string& directory, const std::string& mount_point) const;

  const std::vector<DiskRate>& all() const { return rates_; }

  /// Replaces what was known of GPUs of that name.
  void record(LinkRate rate);

  /// Of GPUs of this name, wherever they are in the machine; null: nobody measured one.
  const LinkRate* link_of(const std::string& name) const;

  const std::vector<LinkRate>& links() const { return links_; }

 private:
  static DiskRates parse(const std::string& text, const std::string& path);

  std::vector<DiskRate> rates_;
  std::vector<LinkRate> links_;
};

/// ${XDG_CONFIG_HOME:-$HOME/.config}/spillway/disks.json; empty when neither variable is set.
std::string default_disk_rates_path();

}  // namespace spillway::topology
