#pragma once

#include <string>

#include "spillway/base/error.h"

namespace spillway {

/// What the error says that `call` throws, of `Kind`, or "accepted". Any other error goes on.
template <typename Kind = Error, typename Call>
std::string error_text(const Call& call) {
  try {
    call();
  } catch (const Kind& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace spillway
