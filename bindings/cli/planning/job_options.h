#pragma once

#include <string>

namespace spillway::cli {

class CommandLine;

/// Options of `plan` about many ranks, as given; an empty text: not given.
struct JobOptions {
  std::string ranks{};
  std::string device_memory{};
  std::string micro_batches{};
  std::string batch{};  ///< Work of a step, in micro-batches as profiled.
  std::string data_parallel{};
  std::string groups{};  ///< Old name of `data_parallel`, which is refused.
  std::string schedule{};
  std::string partitioner{};
  std::string order{};           ///< Order of the layers: auto, recorded or any.
  std::string link{};            ///< GB/s between ranks.
  std::string topology{};        ///< A description of a machine, or the name of one.
  std::string ranks_per_host{};  ///< Ranks that share the disks of a host.
  std::string costs{};           ///< A file with a cost per layer, instead of a profile.
  std::string check{};           ///< A stored plan, or lists of actions as CSV.
  std::string rebalance{};       ///< The stored plan of a job that runs.
  std::string steps_left{};      ///< Steps that the job will still run.
  std::string picture{};         ///< Where the SVG goes.
  bool compare = false;

  /// Whether any of them was given: then the plan is for ranks, not for a budget.
  bool is_given() const {
    return compare || !(ranks + device_memory + micro_batches + batch + data_parallel + groups +
                        schedule + partitioner + order + link + topology + ranks_per_host + costs +
                        check + rebalance + steps_left + picture)
                           .empty();
  }
};

/// Adds the options of `spillway plan` for many ranks; `options` must outlive the parsing.
void add_job_options(CommandLine& line, JobOptions& options);

}  // namespace spillway::cli
