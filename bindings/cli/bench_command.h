#pragma once

#include <string>
#include <vector>

#include "spillway/base/named_values.h"
#include "spillway/swap/disk_probe.h"
#include "spillway/topology/disk_rates.h"

namespace spillway::cli {

struct BenchOptions {
  std::string directory;
  std::string rates_path;  ///< Where the result goes; empty: nowhere.
  swap::DiskProbeOptions probe;
};

/// The stores through which a directory can be measured: all that use one.
std::vector<Named<swap::StoreKind>> measurable_stores();

/// Measures, prints a table and records the result; returns an exit code. Throws ConfigError and
/// IoError.
int measure_disk(const BenchOptions& options);

/// "2026-11-21T10:00:00Z"
std::string utc_now();

/// Throws ConfigError for a file of rates that cannot be written, before anything is measured.
void check_rates_path(const std::string& path);

/// Writes the file of rates, unless there is no place for it, and says where it is; returns an exit
/// code. Throws IoError.
int save_rates(const topology::DiskRates& rates, const std::string& path);

/// "  3.10 [2.90-3.20]": a rate in GB/s, median and range.
std::string rate_cell(const Spread& rate);

/// The table by block size and depth.
std::string rates_table(const swap::DiskProbe& probe);

/// Costs of transfers beyond their bytes, with assumptions where they were not measured.
std::string costs_text(const topology::DiskRate& rate);

/// The result as the rates file keeps it. `measured_at` is ISO 8601.
topology::DiskRate to_disk_rate(const swap::DiskProbe& probe, const std::string& directory,
                                const std::string& device, const std::string& mount_point,
                                const std::string& measured_at);

}  // namespace spillway::cli
