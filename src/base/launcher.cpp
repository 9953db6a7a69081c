#include "spillway/base/launcher.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>

namespace spillway {
namespace {

struct Known {
  const char* name;
  const char* rank;
  const char* ranks;
  const char* ranks_here;
  bool is_of_mpi = true;
};

// A script of sbatch has SLURM_PROCID and SLURM_NTASKS without being started by srun.
constexpr Known kKnown[] = {
    {"the launcher of Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"a launcher of the kind of MPICH's", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
    {"the launcher of MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
     "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ""},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", false},
    {"a launcher of PMIx", "PMIX_RANK", "", ""}};

std::optional<std::uint32_t> number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  std::uint32_t number = 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, status] = std::from_chars(text, end, number);
  if (status != std::errc() || stop != end) return std::nullopt;
  return number;
}

/// "4(x2),3" are 4 ranks on each of two hosts, and 3 on the third one.
std::uint32_t slurm_ranks_here() {
  const char* next = std::getenv("SLURM_STEP_TASKS_PER_NODE");
  if (next == nullptr) return 0;
  unsigned long before = number_in("SLURM_NODEID").value_or(0);
  while (true) {
    char* end = nullptr;
    const unsigned long ranks = std::strtoul(next, &end, 10);
    if (end == next) return 0;
    unsigned long hosts = 1;
    if (end[0] == '(' && end[1] == 'x') hosts = std::strtoul(end + 2, &end, 10);
    if (before < hosts) return static_cast<std::uint32_t>(ranks);
    before -= hosts;
    while (*end == ')') ++end;
    if (*end != ',') return static_cast<std::uint32_t>(ranks);
    next = end + 1;
  }
}

}  // namespace

std::optional<Launcher> find_launcher() {
  constexpr std::uint32_t kMost = 1'000'000, kMostHere = 4096;
  for (const Known& known : kKnown) {
    const auto rank = number_in(known.rank);
    const std::uint32_t ranks = number_in(known.ranks).value_or(0);
    if (!rank || ranks > kMost || (*known.ranks != '\0' && *rank >= ranks)) continue;
    const std::uint32_t here = number_in(known.ranks_here).value_or(slurm_ranks_here());
    return Launcher{.name = known.name,
                    .variable = known.ranks,
                    .rank = *rank,
                    .ranks = ranks,
                    .ranks_here = std::clamp(here, std::uint32_t{1}, kMostHere),
                    .is_of_mpi = known.is_of_mpi};
  }
  return std::nullopt;
}

}  // namespace spillway
