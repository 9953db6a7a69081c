#pragma once

#include "doctor_command.h"
#include "spillway/base/launcher.h"

namespace spillway::cli {

/// The part of `doctor` of each rank that `launcher` has started: examines this process, measures
/// the links between ranks, and on the first rank prints what all have found. Returns the same exit
/// code on all ranks.
int examine_ranks(const runtime::NamedTexts& given, const DoctorOptions& options,
                  const Launcher& launcher);

}  // namespace spillway::cli
