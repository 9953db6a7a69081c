#pragma once

#include <string>
#include <vector>

namespace spillway::cli {

/// Files of the installation beside the command.
struct Installation {
  std::string library_folder;               ///< ../lib, seen from the command.
  std::string preload;                      ///< Path of libspillway_preload.so, or empty.
  std::vector<std::string> served;          ///< LibTorch minors that have a core: "2.11".
  std::vector<std::string> served_on_gpus;  ///< Those of them whose core has its part for CUDA.

  /// The core for a version ("2.11.0"), or empty when that is not served.
  std::string core_for(const std::string& torch_version) const;
  /// "2.11 (CPU, CUDA), 2.13 (CPU)"; empty: none is served.
  std::string list_of_served() const;
};

/// "2.11" of "2.11.0".
std::string minor_of(const std::string& torch_version);

Installation find_installation(const std::string& command_path);

/// The path of the running command; empty where it cannot be told, which takes a system without
/// /proc. Ask before the current folder changes.
std::string own_path();

}  // namespace spillway::cli
