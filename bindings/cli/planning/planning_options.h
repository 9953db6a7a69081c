#pragma once

#include "command_line.h"
#include "planning/commands.h"

namespace spillway::cli {

// The options and the help of each command. What they are read into must outlive the parsing.

CommandLine plan_line(PlanOptions& options);
CommandLine plan_job_line(JobOptions& options);
CommandLine check_line(CheckOptions& options);
CommandLine rebalance_line(RebalanceOptions& options);
CommandLine costs_line(CostOptions& options);

/// Headings of the options of `simulate` that belong to one of its two kinds of files; those of
/// links and disks to a profile.
inline constexpr const char* kOptionsOfSteps = "With a profile of one device";
inline constexpr const char* kOptionsOfJobs = "With a plan for many ranks";
inline constexpr const char* kLinksAndDisks = "Links and disks";
/// Heading of those that say what to do with a plan, not what it is to be.
inline constexpr const char* kOutput = "Output";

/// Help of --json.
inline constexpr const char* kKeysOfJson =
    "Print JSON (share/spillway/planning_output.md of an installation has the keys)";

/// The file, --trace and --json are read into `step` alone.
CommandLine simulate_line(SimulateOptions& step, ClusterOptions& job);

/// Adds --link-out, --link-in and --duplex; `link` begins the help: what the first one is.
void add_link_options(CommandLine& line, RateOptions& rates, const std::string& link);

/// Adds all that says what transfers take, below kLinksAndDisks; `memory` is the help of
/// --host-memory.
void add_rate_options(CommandLine& line, RateOptions& rates, const std::string& link,
                      const std::string& memory);

}  // namespace spillway::cli
