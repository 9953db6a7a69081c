#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spillway/memory/frame_mapper.h"
#include "spillway/runtime/settings/budget.h"
#include "spillway/runtime/settings/settings.h"
#include "spillway/runtime/settings/spill_directories.h"
#include "spillway/swap/disk_probe.h"
#include "spillway/topology/machine.h"

namespace spillway::cli {

enum class Verdict : std::uint8_t { kOk, kWarning, kProblem };

/// One line of `spillway doctor`.
struct Finding {
  std::string subject;  ///< "disk /scratch"
  std::string value;
  Verdict verdict = Verdict::kOk;
  std::string mend;  ///< Next step for the user; empty when there is none.
};

// Findings about what was found out; free of I/O, so that any machine can be put before them.
std::vector<Finding> check_machine(const topology::Machine& machine);
Finding check_budget(const runtime::Settings& settings, const topology::Machine& machine);
/// `budget` is 0 where it cannot be told.
Finding check_mappers(const runtime::Settings& settings, const topology::Machine& machine,
                      const runtime::ResolvedBudget& budget,
                      const std::vector<memory::MapperProbe>& probes);
Finding check_io_uring(const std::string& why_not);
Finding check_disk(const runtime::ResolvedDirectory& directory,
                   const std::optional<swap::DiskProbe>& probe);

/// A LibTorch that was found, for programs of `user` ("python3", a program's path).
struct FoundTorch {
  std::string user;
  std::string path;     ///< Path of libtorch_cpu.so.
  std::string version;  ///< "2.11.0", or empty when it cannot be told.
};
Finding check_torch(const FoundTorch& torch, const std::vector<std::string>& served);

/// The report as aligned text, or as JSON.
std::string report_text(const std::vector<Finding>& findings);
std::string report_json(const std::vector<Finding>& findings);

Verdict worst(const std::vector<Finding>& findings);

}  // namespace spillway::cli
