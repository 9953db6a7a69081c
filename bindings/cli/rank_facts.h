#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "findings.h"
#include "spillway/transport/mpi.h"
#include "spillway/transport/survey/link_survey.h"

namespace spillway::cli {

/// What a rank has found about itself.
struct RankFacts {
  std::string host;
  unsigned ranks_here = 1;      ///< Of its host, by what the launcher has told it.
  std::vector<unsigned> cores;  ///< As topology::Processors has them; empty: unknown.
  unsigned threads = 1;         ///< That LibTorch is going to use.
  double quota = 0.0;           ///< Cores' time that the cgroups of its host allow; 0: no limit.
  unsigned gpus = 0;            ///< Of its host, if each rank there is to have one; 0: unknown.
  Bytes budget;                 ///< 0: none.
  Bytes usable;                 ///< Memory of its host that all ranks there may use; 0: unknown.
  std::vector<Finding> findings;
};

std::string to_text(const RankFacts& facts);
RankFacts parse_rank_facts(const std::string& text);

/// All that the first rank knows of a job.
struct JobFacts {
  transport::MpiJob mpi;
  std::vector<RankFacts> ranks;
  std::vector<transport::MeasuredLink> links;
  /// Of the first rank's host, for a description of the machine.
  std::string processor;
  TransferRate copy_rate;       ///< In memory, by one thread.
  std::uint32_t disks = 0;      ///< That were measured, or had been; 0: rates are unknown.
  TransferRate disk_read_rate;  ///< Of each.
  TransferRate disk_write_rate;
};

/// About the job: its MPI, ranks, cores, clocks, links, budgets.
std::vector<Finding> check_job(const JobFacts& job);

/// The findings of other ranks that are not ok and that the first rank does not have, each once,
/// with the ranks that have it.
std::vector<Finding> findings_of_others(const std::vector<RankFacts>& ranks);

/// The object `job` of the report (bindings/cli/doctor_ranks.md).
nlohmann::ordered_json job_json(const JobFacts& job);

}  // namespace spillway::cli
