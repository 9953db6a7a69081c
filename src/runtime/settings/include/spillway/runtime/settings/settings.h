#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/base/log.h"
#include "spillway/runtime/learning/planning_options.h"
#include "spillway/swap/spill_store_factory.h"

namespace spillway::runtime {

struct BudgetRequest {
  enum class Kind : std::uint8_t { kAuto, kPercent, kSize };
  Kind kind = Kind::kAuto;
  double percent = 0.0;  ///< In (0, 100].
  Bytes size;
};

/// The budget of a device by name.
struct DeviceBudget {
  std::string device;  ///< "cpu", "cuda:0", or "cuda": each GPU that is not named.
  BudgetRequest request;
};

enum class ProgressMode : std::uint8_t { kAuto, kOn, kOff };
enum class ChildPrograms : std::uint8_t { kInherit, kStrip };
enum class UpdatePlace : std::uint8_t { kDevice, kHost };
enum class GradientOrder : std::uint8_t { kOrdered, kFast };

/// Settings of a user. Each field is one key of the config file, one variable SPILLWAY_<KEY>
/// and one option --<key>; `setting_catalogue` says what it means. Sizes carry units.
struct Settings {
  BudgetRequest budget;                      ///< Of the host.
  std::vector<DeviceBudget> device_budgets;  ///< Empty: all devices have one as the host's.
  std::optional<Bytes> reserve;              ///< Unset: see `default_reserve`.
  std::vector<swap::SpillDirectory> nvme;    ///< Empty: see `resolve_spill_directories`.
  Bytes host_tier;  ///< Host memory tier before the directories of `nvme`; 0: none was named.
  swap::StoreKind store = swap::StoreKind::kAuto;
  device::DirectFiles gds = device::DirectFiles::kAuto;
  std::uint32_t queue_depth = 16;       ///< Transfers of 2 MiB in flight, per directory.
  Bytes endurance = 550_TiB;            ///< Rated writes of one spill drive.
  std::optional<Bytes> oversize_limit;  ///< See `RuntimeOptions`.
  bool verify = false;
  std::string mapper = "auto";
  std::string dispatch_key = "auto";
  bool prefetch = true;
  bool recompute = true;
  UpdatePlace update = UpdatePlace::kDevice;
  std::string strategy = "spillway";
  std::string plan;  ///< Path of a stored plan, or empty.
  PlanningMoment planning = PlanningMoment::kInBackground;
  Bytes min_storage = 1_MiB;
  Bytes device_min_storage = 2_MiB;  ///< The same option, on other devices than the host.
  std::string stats;                 ///< Path, or empty. May hold %p and %r.
  std::string trace;                 ///< The same.
  std::uint32_t trace_steps = 3;     ///< Shown in it.
  std::string profile_out;           ///< As `stats`.
  std::uint32_t profile_steps = 0;   ///< End the program after so many equal steps; 0: never.
  std::uint32_t profile_kind = 1;    ///< Kind of step to profile; 1 is the most frequent.
  std::string rates;                 ///< Path, or empty for the default place.
  std::string config;                ///< Where the rest came from, or empty.
  bool quiet = false;
  ProgressMode progress = ProgressMode::kAuto;
  LogLevel log_level = LogLevel::kWarning;
  ChildPrograms children = ChildPrograms::kInherit;
  bool split = false;          ///< One program on all ranks of the job.
  std::uint32_t stages = 0;    ///< Of the model; 0: as many as ranks of a replica allow.
  std::uint32_t replicas = 1;  ///< Pipelines that take micro-batches by turns.
  std::uint32_t shards = 1;    ///< Programs with data of their own.
  GradientOrder gradients = GradientOrder::kOrdered;
  std::string schedule = "1f1b";       ///< Names the placement of stages on ranks.
  std::uint32_t window = 0;            ///< Micro-batches in flight; 0: as many as the schedule has.
  std::vector<std::string> replicate;  ///< Operators whose parameters are on all ranks.
  bool rebalance = true;      ///< The model is cut anew where its steps show uneven stages.
  bool check_control = true;  ///< Ranks compare what their programs do.
};

/// One setting, for help texts and for the command line.
struct SettingInfo {
  std::string_view group;     ///< "Memory", a heading of the help.
  std::string_view key;       ///< "queue-depth"
  std::string_view value;     ///< "SIZE|PERCENT%|auto"
  std::string_view fallback;  ///< Value without the setting, as text.
  std::string_view meaning;
  bool is_switch = false;  ///< --key alone means "on".
  bool is_path = false;    ///< Relative to the folder in which the settings are read.
};

std::span<const SettingInfo> setting_catalogue();

/// "queue-depth" gives "SPILLWAY_QUEUE_DEPTH".
std::string environment_name(std::string_view key);

/// The value of a path setting as seen from `folder`: "ram:1GiB,a,/b,c:1GiB" of nvme becomes
/// "ram:1GiB,/here/a,/b,/here/c:1GiB". Other settings come back as they are. Throws ConfigError for
/// a folder whose name the value cannot hold.
std::string absolute_paths(const SettingInfo& info, std::string_view value,
                           const std::string& folder);

/// Sets one field from text; paths become absolute, as seen from the current folder. Throws
/// ConfigError that names `origin` ("--budget", "SPILLWAY_BUDGET", "spillway.conf:3"), the value
/// and what would be right; for an unknown key the nearest known one.
void assign_setting(Settings& settings, std::string_view key, std::string_view value,
                    std::string_view origin);

using NamedTexts = std::vector<std::pair<std::string, std::string>>;

/// Reads "key = value" lines; '#' starts a comment, a value may stand in double quotes. Throws
/// ConfigError with path and line.
NamedTexts read_config_file(const std::string& path);

struct SettingSources {
  NamedTexts options;      ///< Key and value; they win over
  NamedTexts environment;  ///< name and value (names without SPILLWAY_ in front are ignored), over
                           ///< the config file that either of them names.
  std::string options_origin = "--";  ///< Text that errors put before the key of an option.
};

/// Throws ConfigError as `assign_setting`, also for unknown SPILLWAY_ variables, and for options
/// that mean something with --split alone.
Settings load_settings(const SettingSources& sources);

/// Keys and values of the path settings that win, absolute: for a child that may start elsewhere.
NamedTexts absolute_path_settings(const SettingSources& sources);

/// The variables of this process that begin with SPILLWAY_.
NamedTexts spillway_environment();

/// How plans are made for the CPU, or for the `device` of that name. Reads the stored plan, which
/// is one's or another's; throws IoError for a file that cannot be read and ConfigError for one
/// that is no plan or can never be followed with these settings.
PlanningOptions planning_of(const Settings& settings, std::optional<Bytes> budget = {},
                            const std::string& device = {});

/// Settings of the core of a run: `spillway run` hands all of them on through the environment.
Settings settings_from_environment();

/// Fills %p (process id), %r (rank, 0 without one), %% and, where there is one, %d (device) of a
/// path.
std::string expand_stats_path(std::string_view pattern, long process_id, std::string_view rank,
                              std::optional<std::string_view> device = {});

/// Each has one of its own by that name: it has %r or %p.
bool is_of_each_rank(std::string_view pattern);

/// The file that this process writes. Programs that a launcher has started beside one another each
/// write one: those that are not the first get their rank before the suffix, "run.1.json", where
/// the pattern does not tell them apart.
std::string output_path(const Settings& settings, std::string_view pattern,
                        std::optional<std::string_view> device = {});

/// The rank that mpiexec, srun or torchrun gave this process, or nothing.
std::optional<std::string> launched_rank();

/// How many processes of the same job they started on this machine; 1 without a launcher.
unsigned launched_ranks_here();

}  // namespace spillway::runtime
