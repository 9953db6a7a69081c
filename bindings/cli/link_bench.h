#pragma once

#include <string>
#include <vector>

#include "spillway/device/cuda/mapping_times.h"
#include "spillway/device/link_probe.h"
#include "spillway/topology/link_rate.h"

namespace spillway::cli {

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

/// The tables for people.
std::string link_tables(const device::LinkProbe& probe,
                        const std::vector<device::MappingTime>& mapping);

/// The result as the rates file keeps it.
topology::LinkRate to_link_rate(const device::LinkProbe& probe,
                                const std::vector<device::MappingTime>& mapping);

}  // namespace spillway::cli
