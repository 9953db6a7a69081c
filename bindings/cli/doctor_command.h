#pragma once

#include <string>
#include <vector>

#include "findings.h"
#include "spillway/base/bytes.h"
#include "spillway/base/launcher.h"
#include "spillway/runtime/settings/settings.h"
#include "spillway/topology/machine.h"

namespace spillway::cli {

struct DoctorOptions {
  bool json = false;
  bool measures_disks = true;
  std::string program;  ///< Program whose LibTorch is checked; empty: all that are found.
  std::vector<std::string> arguments = {};  ///< Of that program, which may name a GPU.
};

/// Who is to be examined.
enum class Examined : std::uint8_t {
  kMachine,  ///< This process and its machine.
  kProcess,  ///< What may differ between processes of one machine.
};

/// The rates of the disks that a run would spill to.
struct FoundDisks {
  std::uint32_t count = 0;  ///< 0: of some, nothing is known.
  TransferRate read;        ///< All together.
  TransferRate write;
};

struct Examination {
  std::vector<Finding> findings;
  topology::Machine machine;
  std::size_t gpus = 0;  ///< That programs may use; 0: there are none, or nobody has looked.
  Bytes budget;          ///< 0: there is none.
  FoundDisks disks;
};

/// Throws ConfigError for wrong settings.
Examination examine_process(const runtime::NamedTexts& given, const DoctorOptions& options,
                            Examined whom);

/// Prints one line per check; returns an exit code. The ranks that a launcher of MPI has started
/// are examined together, and the first one prints. Throws ConfigError for wrong settings.
int examine(const runtime::NamedTexts& given, const DoctorOptions& options);

/// The part of that of each rank that `launcher` has started: examines this process, measures the
/// links between ranks, and on the first rank prints what all have found. Returns the same exit
/// code on all ranks.
int examine_ranks(const runtime::NamedTexts& given, const DoctorOptions& options,
                  const Launcher& launcher);

}  // namespace spillway::cli
