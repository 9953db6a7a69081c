#pragma once

#include <string>

#include "nccl_api.h"

namespace spillway::transport::nccl {

/// NCCL as it was found.
struct Library {
  Functions call;
  std::string path;
  int version = 0;
  std::string reason;  ///< Why it cannot be used, with the way to mend it; empty: it can.
};

/// Looks for the library that is named, or else among what the process has loaded and then where
/// the system finds libraries. What is found stays loaded. Any thread.
Library find_library(const std::string& wanted);

/// "2.28.9" of 22809.
std::string release_of(int version);

}  // namespace spillway::transport::nccl
