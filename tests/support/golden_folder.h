#pragma once

#include <string>

namespace spillway {

/// The file of that name in the folder `texts` beside the tests of this program.
std::string golden_file(const std::string& name);

}  // namespace spillway
