#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/runtime/reporting/run_statistics.h"

namespace spillway::runtime {

/// The text at exit, at most one screen, each line with "[spillway] " in front: what the trainer
/// needed and was given, what moved where, where time was lost, what to change. Scripts may rely on
/// one line each that begins with `needed … SIZE`, `budget … SIZE` and `peak … SIZE`, and on one
/// for each other device: `cuda:0 needed SIZE …, budget SIZE …, peak SIZE …`. With a `rank` that is
/// "[spillway 0] ", as in lines of the log.
std::string summary(const RunStatistics& statistics, const std::string& rank = {});

/// Figures of the progress line.
struct Progress {
  std::uint64_t step = 0;
  double step_seconds = 0.0;
  Bytes resident;  ///< On the host.
  Bytes spilled;   ///< Outside of memory now, of all devices.
  TransferRate read;
  TransferRate write;
  std::vector<std::pair<std::string, Bytes>> on_devices = {};  ///< Resident there, by device.
};

/// One line without a line end, at most `width` columns.
std::string progress_line(const Progress& progress, std::size_t width = 80);

}  // namespace spillway::runtime
