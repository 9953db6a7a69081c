#pragma once

#include "profile_options.h"

namespace spillway::cli {

/// Makes a profile of a published trace; returns an exit code. `settings` are those that were
/// given. Throws ConfigError and IoError.
int import_profile(const ProfileOptions& options, const runtime::NamedTexts& settings);

}  // namespace spillway::cli
