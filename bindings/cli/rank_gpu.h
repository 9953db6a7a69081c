#pragma once

#include <optional>
#include <string>

#include "spillway/base/launcher.h"

namespace spillway::cli {

/// What CUDA_VISIBLE_DEVICES is to be for a rank of a split program, so that each rank of a host
/// has a GPU of its own, which it calls cuda:0; nothing: it stays as it is. `visible`: what it is
/// now; null: it is not set. Of several GPUs a rank gets that of its number on the host; a single
/// one is what the user, or the site, has chosen for it. Throws ConfigError where several are named
/// that are fewer than the ranks.
std::optional<std::string> gpu_of_rank(const Launcher& launcher, const char* visible);

}  // namespace spillway::cli
