#pragma once

#include <string>

#include "spillway/runtime/settings/settings.h"

namespace spillway::cli {

struct DoctorOptions {
  bool json = false;
  bool measures_disks = true;
  std::string program;  ///< Program whose LibTorch is checked; empty: all that are found.
};

/// Prints one line per check; returns an exit code. Throws ConfigError for wrong settings.
int examine(const runtime::NamedTexts& given, const DoctorOptions& options);

}  // namespace spillway::cli
