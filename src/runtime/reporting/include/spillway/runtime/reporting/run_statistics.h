#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/profile/transfer_rates.h"
#include "spillway/runtime/reporting/ranks_report.h"
#include "spillway/runtime/reporting/runtime_report.h"

namespace spillway::runtime {

/// Calls that were compared with a second run, bit for bit. A kind is an operator with the shapes
/// and types of its tensors and its other arguments.
struct VerifiedReplays {
  std::uint64_t equal_kinds = 0;
  std::uint64_t differing_kinds = 0;               ///< These are not run again.
  std::map<std::string, std::uint64_t> operators;  ///< How many of the equal kinds each has.

  /// The same operator on another device is of another kind.
  VerifiedReplays& operator+=(const VerifiedReplays& other) {
    equal_kinds += other.equal_kinds;
    differing_kinds += other.differing_kinds;
    for (const auto& [name, kinds] : other.operators) operators[name] += kinds;
    return *this;
  }
};

/// How one process fared with the memory of the host, and in `devices` with that of each other
/// device: what the statistics file and the summary are made of.
/// `statistics_fields` says what each key of the file is called and means.
struct RunStatistics : RuntimeReport {
  std::string spillway_version;
  std::string libtorch_version;
  std::string device = "cpu";          ///< Whose memory the figures are about.
  std::string device_name;             ///< Of the card; empty: the host.
  Bytes device_memory;                 ///< Of the card; 0: the host.
  std::vector<RunStatistics> devices;  ///< Without what is about the process.
  std::string program;
  std::int64_t process_id = 0;
  std::optional<std::string> rank;
  std::optional<RanksReport> ranks;  ///< Of a split program, on its first rank.

  Bytes budget;
  std::string budget_origin;     ///< As ResolvedBudget tells it.
  bool is_budget_auto = false;   ///< As ResolvedBudget tells it.
  std::string address_limit;     ///< `arena_reason` of ResolvedBudget: ends advice on budgets.
  std::string why_no_addresses;  ///< The same with more advice: ends advice on addresses.
  Bytes peak_rss;
  double run_seconds = 0.0;

  Bytes disk_written;  ///< Bytes that the store wrote to its disks; 0 for stores in memory.
  Bytes endurance;     ///< Rated writes of all spill drives together; 0: they do not wear.
  std::optional<profile::TransferRates>
      rates;  ///< Rates of the store that the latest plans were made with.

  /// The plan that the run was given.
  struct GivenPlan {
    std::string file;
    Bytes budget;                  ///< Budget that it was made for.
    profile::TransferRates rates;  ///< The same.
    double step_seconds = 0.0;     ///< Predicted when it was made.
    std::uint64_t steps = 0;      ///< Steps that followed it from their first operator to the last.
    std::uint64_t all_steps = 0;  ///< Steps that have ended.
    std::string misfit;           ///< Why it was for none of the steps; empty: it was for some.
  };
  std::optional<GivenPlan> given_plan;

  bool recompute = true;     ///< Operators are recorded where plans want to run them again.
  Bytes recorded_peak;       ///< Copies of what recorded operators have read, beside the budget.
  VerifiedReplays verified;  ///< With `verify` only.

  std::string mapper;
  std::string dispatch_key;
  std::string store;
  std::vector<std::string> directories;
  bool prefetch = true;
  bool updates_on_host = false;  ///< As asked for.
  bool verify = false;

  /// Time in which the trainer waited for Spillway.
  double stall_seconds() const {
    return seconds(memory.fetch_wait + memory.room_wait + memory.fault_wait);
  }
  /// By the stores of all devices.
  Bytes all_disk_written() const;
  /// The most bytes that the followed plan takes at once, with what never leaves; 0 without one.
  Bytes planned_peak() const;
};

/// The JSON text of the statistics file.
std::string to_json(const RunStatistics& statistics);

/// Replaces the file at `path` as a whole. Throws IoError.
void write_statistics(const std::string& path, const RunStatistics& statistics);

}  // namespace spillway::runtime
