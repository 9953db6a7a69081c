#pragma once

#include <string>

#include "spillway/base/error.h"
#include "spillway/transport/mpi.h"

namespace spillway::split {

/// Why a split program does not begin, thrown by all its ranks with the same text.
class AgreedError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

/// Before a job begins: each rank says why it cannot take part, with nothing where it can. Waits
/// for all ranks. Throws AgreedError where one cannot, which names the first such rank.
void agree_on_refusals(transport::MpiTransport& transport, const std::string& mine);

}  // namespace spillway::split
