#pragma once

#include <string>

#include "findings.h"

namespace spillway::cli {

/// What this process gives to a rank whose files and output are its own.
struct PrivateRankOptions {
  std::string rank;           ///< Shown in front of each line of Spillway.
  std::string parent_folder;  ///< Where the folder of its files is made.
};

/// Readies this process, and the program that it becomes, to run as a rank of which the user sees
/// nothing: its files lie in a folder of its own (see private_files.h of bindings/preload), which
/// is gone when this process has ended in whatever way; standard input is empty, standard output
/// leads nowhere, and of the error output only what Spillway says comes out, with the rank in
/// front. A process beside this one sees to that, without being its child. Removes what runs left
/// behind that ended together with theirs. Throws IoError. Call once, while there is one thread.
void become_private_rank(const PrivateRankOptions& options);

/// Looks at the folder that this process works in: files that the first rank makes there are its
/// own only where the file system tells when they were made.
Finding examine_working_folder();

}  // namespace spillway::cli
