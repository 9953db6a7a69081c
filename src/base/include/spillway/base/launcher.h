#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace spillway {

/// What has started this process as one of many ranks, by its environment.
struct Launcher {
  std::string_view name;         ///< "the launcher of Open MPI"
  std::string_view variable;     ///< Tells how many ranks there are; empty: it does not say.
  std::uint32_t rank = 0;        ///< Of this process.
  std::uint32_t ranks = 0;       ///< In all; 0: it does not say.
  std::uint32_t ranks_here = 1;  ///< On this host; 1 where it does not say.
  bool is_of_mpi = true;         ///< Not so of torchrun.
};

/// mpiexec, srun, torchrun; none: this process is alone. The one place that knows their variables.
std::optional<Launcher> find_launcher();

}  // namespace spillway
