#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include "planning/planning_rates.h"
#include "spillway/base/clock.h"
#include "spillway/planner/job/job_request.h"
#include "spillway/runtime/settings/settings.h"

namespace spillway::cli {

/// In which order the branches of a model may be assigned to stages.
enum class BranchOrder : std::uint8_t {
  kAuto,      ///< Any where the profile has all dependences, else as recorded.
  kRecorded,  ///< As recorded.
  kAny,       ///< Any that the tensors of the profile allow.
};

/// Options of `plan-job`.
struct JobOptions {
  runtime::NamedTexts asked{};  ///< All but those of the output, as they were written: for reports.
  std::string profile;          ///< Of one micro-batch.
  planner::JobRequest request;  ///< What options say of it; the rest comes of the profile.
  std::optional<std::uint32_t> micro_batches;
  std::optional<std::uint32_t> batch;  ///< Work of a step, in micro-batches as profiled.
  BranchOrder order = BranchOrder::kAuto;
  RateOptions rates;    ///< Of a rank's link to its host, and of what is behind.
  std::string cluster;  ///< File of the machine's description.
  std::optional<std::uint32_t> ranks_per_host;
  std::string out;
  std::string picture;
  bool compare = false;
  bool json = false;
};

/// Reads "auto", or a schedule with its options: "1f1b-capped:slots=3". Throws as `schedule_in`.
void take_schedule(const std::string& text, planner::JobRequest& request);

/// `spillway plan-job`: plans a profile for many ranks, or compares plans, and prints; returns an
/// exit code. Throws ConfigError, PlanError and IoError.
int plan_job(const JobOptions& options, std::ostream& out, const Clock& clock);

}  // namespace spillway::cli
