#pragma once

#include "profile_options.h"

namespace spillway::cli {

/// Makes a profile of a published trace; returns an exit code. Throws ConfigError and IoError.
int import_profile(const ProfileOptions& options);

}  // namespace spillway::cli
