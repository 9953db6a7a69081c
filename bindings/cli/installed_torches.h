#pragma once

#include <string>
#include <vector>

#include "findings.h"

namespace spillway::cli {

/// The torch that a program called python… imports, or nothing. Starts it.
std::vector<FoundTorch> find_torch_of_python(const std::string& program);

/// Where people have LibTorch, without a program that says which: the folder that
/// SPILLWAY_LIBTORCH_DIR names, the torch of `python3`, what the set-up has fetched. Starts
/// python3.
std::vector<FoundTorch> find_installed_torches();

}  // namespace spillway::cli
