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

/// A LibTorch that was found, for programs of `user` ("python3", a program's path).
struct FoundTorch {
  std::string user;
  std::string path;     ///< Path of libtorch_cpu.so.
  std::string version;  ///< "2.11.0", or empty when it cannot be told.
  /// The runtime of CUDA that it goes with (path of libcudart.so.13); empty: it is for the CPU
  /// alone.
  std::string cuda_runtime = {};
};

/// The torch that a program called python… imports, or nothing. Starts it.
std::vector<FoundTorch> find_torch_of_python(const std::string& program);

/// Where people have LibTorch, without a program that says which: the folder that
/// SPILLWAY_LIBTORCH_DIR names, the torch of `python3`, what the set-up has fetched. Starts
/// python3.
std::vector<FoundTorch> find_installed_torches();

}  // namespace spillway::cli
