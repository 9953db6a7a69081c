#pragma once

#include <string>

#include "setting_values.h"
#include "spillway/planner/cluster/cluster.h"

namespace spillway::cli {

/// Where the descriptions of machines are that came with a command: ../share/spillway/clusters,
/// seen from it.
std::string cluster_folder(const std::string& command_path);

/// The file that a word behind `option` means: the word itself where it is a path (has a slash or
/// ends in .json) or a file, else the description of that name in `folder`. Throws ConfigError with
/// the names that there are.
std::string cluster_path(const std::string& option, const std::string& word,
                         const std::string& folder);

/// Such words, as the paths of the command that runs.
ValueKind<std::string> clusters();

/// With files of measured messages from the folder of the description. Throws IoError for a file
/// that cannot be read, and what `parse_cluster` throws.
cluster::Cluster read_cluster(const std::string& path);

}  // namespace spillway::cli
