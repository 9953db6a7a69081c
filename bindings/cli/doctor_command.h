#pragma once

#include <string>

#include "spillway/runtime/settings/settings.h"

namespace spillway::cli {

struct DoctorOptions {
  bool json = false;
  bool measures_disks = true;
  std::string program;  ///< Whose LibTorch to look at; empty: what can be found.
};

/// Prints one line per check; returns an exit code. Throws ConfigError for wrong settings.
int examine(const runtime::NamedTexts& given, const DoctorOptions& options);

}  // namespace spillway::cli
