#include "spillway/base/launcher.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace spillway {
namespace {

struct Known {
  const char* name;
  const char* rank;
  const char* ranks;
  const char* ranks_here;
  const char* rank_here;
  bool is_of_mpi = true;
};

// A script of sbatch has SLURM_PROCID and SLURM_NTASKS without being started by srun.
constexpr Known kKnown[] = {
    {"the launcher of Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"a launcher of the kind of MPICH's", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS",
     "MPI_LOCALRANKID"},
    {"the launcher of MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
     "MV2_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "", "SLURM_LOCALID"},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK", false},
    {"a launcher of PMIx", "PMIX_RANK", "", "", ""}};

/// What programs look at to find out whether they are one of many, and what MPI is started by.
/// Settings of an MPI (OMPI_MCA_btl, MPIR_CVAR_...) stay, for what the program may start.
constexpr std::string_view kOfLaunchers[] = {"PMI_",
                                             "PMIX_",
                                             "MPI_LOCALRANKID",
                                             "MPI_LOCALNRANKS",
                                             "OMPI_COMM_WORLD_",
                                             "OMPI_MCA_ess",
                                             "OMPI_MCA_orte",
                                             "OMPI_UNIVERSE_",
                                             "MV2_COMM_WORLD_",
                                             "JSM_NAMESPACE_",
                                             "SLURM_PROCID",
                                             "SLURM_NTASKS",
                                             "SLURM_NPROCS",
                                             "SLURM_LOCALID",
                                             "SLURM_NODEID",
                                             "SLURM_STEP_NUM",
                                             "SLURM_STEP_TASKS",
                                             "SLURM_TASKS_PER"};
/// Names that a program may use for something else, where they do not come together.
constexpr std::string_view kOfTorchrun[] = {
    "RANK",       "WORLD_SIZE", "LOCAL_RANK",     "LOCAL_WORLD_SIZE",
    "GROUP_RANK", "ROLE_RANK",  "ROLE_WORLD_SIZE"};

const char* variable(const std::string& name) {
  const char* const hidden = std::getenv((std::string(kHiddenLauncher) + name).c_str());
  return hidden != nullptr ? hidden : std::getenv(name.c_str());
}

std::optional<std::uint32_t> number_of(const char* text) {
  if (text == nullptr) return std::nullopt;
  std::uint32_t number = 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, status] = std::from_chars(text, end, number);
  if (status != std::errc() || stop != end) return std::nullopt;
  return number;
}

std::optional<std::uint32_t> number_in(const char* name) { return number_of(variable(name)); }

/// "4(x2),3" are 4 ranks on each of two hosts, and 3 on the third one.
std::uint32_t slurm_ranks_here() {
  const char* next = variable("SLURM_STEP_TASKS_PER_NODE");
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

bool is_of_launcher(std::string_view name, bool has_torchrun) {
  return std::any_of(std::begin(kOfLaunchers), std::end(kOfLaunchers),
                     [&](std::string_view start) { return name.starts_with(start); }) ||
         (has_torchrun &&
          std::find(std::begin(kOfTorchrun), std::end(kOfTorchrun), name) != std::end(kOfTorchrun));
}

/// As it was started; nothing: that is not to be read.
std::vector<std::string> environment_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/environ");
  std::vector<std::string> all;
  for (std::string entry; std::getline(file, entry, '\0');) all.push_back(entry);
  return all;
}

std::optional<std::string> value_in(const std::vector<std::string>& environment,
                                    const std::string& name) {
  for (const std::string& entry : environment)
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  return std::nullopt;
}

/// 0: it has none that can be seen.
pid_t parent_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name = text.rfind(')');  // It may hold anything; behind it: " S 4711 ...".
  return name == std::string::npos || name + 4 > text.size()
             ? 0
             : static_cast<pid_t>(std::strtol(text.c_str() + name + 4, nullptr, 10));
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
                    .rank_variable = known.rank,
                    .rank = *rank,
                    .ranks = ranks,
                    .ranks_here = std::clamp(here, std::uint32_t{1}, kMostHere),
                    .is_of_mpi = known.is_of_mpi,
                    .rank_here = number_in(known.rank_here)};
  }
  return std::nullopt;
}

bool is_as_launcher_has(const char* name) {
  const auto launcher = find_launcher();
  if (!launcher) return false;
  const std::string rank(launcher->rank_variable);
  for (pid_t process = ::getppid(); process > 0; process = parent_of(process)) {
    const std::vector<std::string> told = environment_of(process);
    if (told.empty()) return false;
    // A wrapper of this rank.
    if (value_in(told, rank) || value_in(told, std::string(kHiddenLauncher) + rank)) continue;
    const char* const mine = std::getenv(name);
    return value_in(told, name) ==
           (mine == nullptr ? std::nullopt : std::optional<std::string>(mine));
  }
  return false;
}

void hide_launcher() {
  if (!find_launcher()) return;
  const auto rank = number_of(std::getenv("RANK")), ranks = number_of(std::getenv("WORLD_SIZE"));
  std::vector<std::string> told;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (is_of_launcher(text.substr(0, text.find('=')), rank && ranks && *rank < *ranks))
      told.emplace_back(text);
  }
  for (const std::string& text : told) {
    const std::size_t end = text.find('=');
    ::setenv((std::string(kHiddenLauncher) + text.substr(0, end)).c_str(), text.c_str() + end + 1,
             1);
    ::unsetenv(text.substr(0, end).c_str());
  }
}

bool has_launcher_variable(std::string_view beginning) {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    std::string_view text(*entry);
    if (text.starts_with(kHiddenLauncher)) text.remove_prefix(kHiddenLauncher.size());
    if (text.starts_with(beginning)) return true;
  }
  return false;
}

}  // namespace spillway
