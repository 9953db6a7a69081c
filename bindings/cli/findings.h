#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "installation.h"
#include "spillway/base/error.h"
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
  std::string mend{};  ///< Next step for the user; empty when there is none.

  /// Adds a next step, and makes the verdict as bad as this at least.
  void add_mend(Verdict least, const std::string& next);
  template <typename... Args>
  void warn(std::string_view pattern, const Args&... args) {
    add_mend(Verdict::kWarning, message(pattern, args...));
  }
  template <typename... Args>
  void fail(std::string_view pattern, const Args&... args) {
    add_mend(Verdict::kProblem, message(pattern, args...));
  }
};

// For another process of this program.
void to_json(nlohmann::json& json, const Finding& finding);
void from_json(const nlohmann::json& json, Finding& finding);

// Findings about what was found out; free of I/O, so that any machine can be put before them.
std::vector<Finding> check_machine(const topology::Machine& machine);

struct CheckedBudget {
  Finding finding;
  /// Within the limits of this process; 0: there is none. Its arena is 0 where the limit of
  /// addresses refuses it.
  runtime::ResolvedBudget budget;
};
CheckedBudget check_budget(const runtime::Settings& settings, const topology::Machine& machine);
/// `budget` as `check_budget` has it. A trainer has less left of the limit: it loads LibTorch.
Finding check_address_space(const topology::ProcessLimits& limits,
                            const runtime::ResolvedBudget& budget);
/// `budget` is 0 where it cannot be told.
Finding check_mappers(const runtime::Settings& settings, const topology::Machine& machine,
                      const runtime::ResolvedBudget& budget,
                      const std::vector<memory::MapperProbe>& probes);
Finding check_io_uring(const std::string& why_not);
Finding check_disk(const runtime::ResolvedDirectory& directory,
                   const std::optional<swap::DiskProbe>& probe);
/// Of ranks of one program. `tells_births`: of files there, its file system tells when they were
/// made.
Finding check_working_folder(const std::string& path, bool tells_births);

Finding check_torch(const FoundTorch& torch, const std::vector<std::string>& served);
/// Where no program says which of them it uses: one that is served is enough.
std::vector<Finding> check_installed_torches(const std::vector<FoundTorch>& torches,
                                             const std::vector<std::string>& served);

/// The report as aligned text, or as JSON; of several ranks with what is known of the job.
std::string report_text(const std::vector<Finding>& findings);
std::string report_json(const std::vector<Finding>& findings);
std::string report_json(const std::vector<Finding>& findings, const nlohmann::ordered_json& job);

Verdict worst(const std::vector<Finding>& findings);

}  // namespace spillway::cli
