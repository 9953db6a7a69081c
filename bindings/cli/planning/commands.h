#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "output_files.h"
#include "planning/plan_figures.h"
#include "planning/planning_rates.h"
#include "spillway/base/clock.h"
#include "spillway/planner/cluster/job_simulation.h"
#include "spillway/planner/job/job_request.h"
#include "spillway/planner/partition/partitioners.h"
#include "spillway/runtime/settings/settings.h"

namespace spillway::cli {

// The options of each command, and what carries it out and prints. All throw ConfigError for
// options and files that make no sense together, and IoError; PlanError for a plan that has a fault
// or does not fit.

/// Options that `plan` and `simulate` share.
struct CommonOptions {
  std::string profile;  ///< Path.
  std::optional<StepBudget> budget;
  std::vector<planner::Strategy> strategies{planner::strategies().front()};
  RateOptions rates;
  BoundEffort bound = BoundEffort::kQuick;
  std::optional<double> effort;  ///< Seconds for each plan.
  bool json = false;
};

struct PlanOptions {
  CommonOptions common;
  std::string out;  ///< Where the plan goes.
  bool frontier = false;
  std::string picture;
  std::uint32_t points = 9;  ///< Of the frontier.
};

/// Throws BudgetError and UnsupportedError, too.
void plan_from_profile(const PlanOptions& options, std::ostream& out, const Clock& clock);

/// The plan of the first strategy. Throws BudgetError when the strategy has none for that budget.
EvaluatedPlan plan_asked_for(const CommonOptions& options, const PlanningCase& planning,
                             const Clock& clock);

/// Files that commands read which plan a profile, for `check_outputs`.
std::vector<NamedFile> files_read(const std::string& profile, const RateOptions& rates);

/// Options of `simulate` for a step of one device.
struct SimulateOptions {
  CommonOptions common;
  std::string plan;    ///< A stored plan; empty: it is made.
  std::string trace;   ///< Where the Chrome trace goes.
  std::string beside;  ///< The trace of a run, to be laid beside it.
};

/// Runs the event model over a plan and writes a trace. Throws as `plan_from_profile`.
void simulate_plan(const SimulateOptions& options, std::ostream& out, const Clock& clock);

/// Options of `simulate` for a stored plan for many ranks.
struct ClusterOptions {
  std::string plan;
  std::string cluster;  ///< File of a description; empty: the machine that the plan was made for.
  std::optional<std::uint32_t> ranks;  ///< Devices of that machine; else as many as the plan has.
  double speedup = 1.0;                ///< Speed of its devices over those of the plan.
  cluster::PlacementOrder placement = cluster::PlacementOrder::kPipelineFirst;
  cluster::UpdatePlace update = cluster::UpdatePlace::kDevice;
  std::optional<cluster::SwapTarget> swap_to;  ///< Else as in the plan.
  std::optional<double> stragglers;            ///< Share of the time of a device.
  std::string trace;                           ///< Where the Chrome trace goes.
  bool json = false;
};

/// Runs the plan on a machine.
void simulate_on_cluster(const ClusterOptions& options, std::ostream& out, const Clock& clock);

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
  job::JobRequest request;      ///< What options say of it; the rest comes of the profile.
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
void take_schedule(const std::string& text, job::JobRequest& request);

/// Plans a profile for many ranks, or compares plans.
void plan_job(const JobOptions& options, std::ostream& out, const Clock& clock);

/// Options of `check`.
struct CheckOptions {
  std::string plan;  ///< A stored plan for many ranks, or lists of actions as CSV.
  bool json = false;
};

/// Looks for the first fault of the plan, which it throws, and prints what it looked at.
void check_plan(const CheckOptions& options, std::ostream& out, const Clock& clock);

/// Options of `rebalance`. Those about memory and links say what the plan leaves open, or the same
/// again.
struct RebalanceOptions {
  std::string plan;     ///< That the job runs now.
  std::string profile;  ///< Newer than it.
  std::optional<std::uint32_t> steps_left;
  std::optional<Bytes> device_memory;
  std::optional<TransferRate> link;  ///< Between ranks.
  RateOptions rates;                 ///< Of the link to the host, and the memory behind it.
  std::string out;
  bool json = false;
};

/// The stages of a stored plan on the costs of a new profile, the moves of layers that make them
/// even again, and whether these pay; stores the plan to go on with where --out names a file.
void rebalance_plan(const RebalanceOptions& options, std::ostream& out, const Clock& clock);

/// Options of `costs`.
struct CostOptions {
  std::string costs;  ///< File with the time of each layer.
  std::uint32_t ranks = 0;
  std::string_view partitioner = partition::partitioners().front().name;
  bool compare = false;  ///< All partitioners.
  bool json = false;
};

/// Cuts a list of layer times, with one partitioner or with all.
void cut_costs(const CostOptions& options, std::ostream& out, const Clock& clock);

/// The numbers of a text, between blanks, commas or line ends; what follows a # is passed over.
/// Throws ConfigError with file and line for anything else, and for a text without a number.
std::vector<double> costs_in(const std::string& text, const std::string& file);

}  // namespace spillway::cli
