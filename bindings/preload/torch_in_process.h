#pragma once

#include <limits.h>

#include "spillway/preload/torch_version.h"

namespace spillway::preload {

/// What the process has of LibTorch.
struct TorchInProcess {
  int copies = 0;           ///< Different libtorch_cpu libraries that are mapped.
  char path[PATH_MAX]{};    ///< Of the first one.
  char second[PATH_MAX]{};  ///< Of the second one.
  bool has_core = false;    ///< A core is mapped already: the program was linked with it.
  TorchVersion version;     ///< Of the first one.
};

/// Looks through the mapped libraries. `with_version` also searches the first copy's constants.
void find_torch(TorchInProcess& found, bool with_version);

}  // namespace spillway::preload
