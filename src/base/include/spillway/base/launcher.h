#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace spillway {

/// Before the names of a launcher's variables that `hide_launcher` has renamed.
inline constexpr std::string_view kHiddenLauncher = "SPILLWAY_LAUNCHER_";

/// What has started this process as one of many ranks, by its environment.
struct Launcher {
  std::string_view name;           ///< "the launcher of Open MPI"
  std::string_view variable;       ///< Tells how many ranks there are; empty: it does not say.
  std::string_view rank_variable;  ///< Tells which this one is.
  std::uint32_t rank = 0;          ///< Of this process.
  std::uint32_t ranks = 0;         ///< In all; 0: it does not say.
  std::uint32_t ranks_here = 1;    ///< On this host; 1 where it does not say.
  bool is_of_mpi = true;           ///< Not so of torchrun.
  std::optional<std::uint32_t> rank_here{};  ///< Among those of this host; none: it does not say.
};

/// mpiexec, srun, torchrun; none: this process is alone. Also where its variables are hidden. The
/// one place that knows them.
std::optional<Launcher> find_launcher();

/// Whether the variable has the value here, or none, with which the launcher of this process was
/// started: then it has told all ranks the same. Something between the two, or the program itself,
/// may have set it for this rank. False where no launcher is found or its environment is not to be
/// read.
bool is_as_launcher_has(const char* name);

/// Renames the variables of launchers in this process's environment, for a program that is one on
/// all ranks and would take itself for one of many: `PMI_RANK` becomes
/// `SPILLWAY_LAUNCHER_PMI_RANK`. MPI finds them again (bindings/preload). Nothing where no launcher
/// has started it, or they are hidden. Not beside threads that read the environment.
void hide_launcher();

/// Whether a launcher has set a variable whose name begins so, hidden or not.
bool has_launcher_variable(std::string_view beginning);

}  // namespace spillway
