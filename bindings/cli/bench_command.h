#pragma once

#include <string>
#include <vector>

#include "spillway/base/named_values.h"
#include "spillway/device/link_probe.h"
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

/// The table by block size and depth.
std::string rates_table(const swap::DiskProbe& probe);

/// Costs of transfers beyond their bytes, with assumptions where they were not measured.
std::string costs_text(const topology::DiskRate& rate);

/// The result as the rates file keeps it. `measured_at` is ISO 8601.
topology::DiskRate to_disk_rate(const swap::DiskProbe& probe, const std::string& directory,
                                const std::string& device, const std::string& mount_point,
                                const std::string& measured_at);

struct LinkBenchOptions {
  std::string device;      ///< "cuda:0"
  std::string rates_path;  ///< Where the result goes; empty: nowhere.
  device::LinkProbeOptions probe;
  std::vector<Bytes> chunks = {2_MiB, 4_MiB, 8_MiB, 32_MiB};  ///< That are mapped and unmapped.
};

/// Measures what paging on a GPU is made of, prints tables and records the result; returns an exit
/// code. Throws ConfigError for words that name no GPU, UnsupportedError with the reason for one
/// that is not there, IoError and Error where memory is refused.
int measure_link_of(const LinkBenchOptions& options);

}  // namespace spillway::cli
