#pragma once

#include <cstdint>
#include <string>

#include "shim.h"
#include "spillway/transport/mpi.h"

namespace spillway::transport::mpi {

/// The MPI of this machine, opened, and the table of functions for its ABI.
struct Site {
  const Shim* shim = nullptr;
  std::string library;  ///< Path.
  std::string version;  ///< First line of what it says of itself.
  std::string abi;
};

/// Finds and opens it. Throws ConfigError and UnsupportedError, which say what to install. Nothing
/// is ever closed: MPIs do not outlive that.
Site open_site(const MpiOptions& options);

}  // namespace spillway::transport::mpi
