#pragma once

#include <string>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/transport/transport.h"

namespace spillway::split {

/// Why a split program does not begin, thrown by all its ranks with the same text.
class AgreedError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

/// What a rank tells of its GPUs when a job begins.
struct RankGpus {
  std::string name;        ///< What it calls those that it sees; empty: it uses none.
  bool has_share = false;  ///< Its budget is a share of what is free there: it asks who has others.
};

/// What all ranks have told of theirs.
struct CommonGpus {
  bool are_asked_for = false;  ///< By a rank that is not alone with its name. On all ranks alike.
  bool has_mine = false;       ///< Another rank of this host has the name of this one.
};

/// Before a job begins: each rank says why it cannot take part, with nothing where it can, and
/// which GPUs it may use. Waits for all ranks. Throws AgreedError where one cannot, which names the
/// first such rank. `hosts`: of each rank.
CommonGpus agree_on_refusals(transport::Transport& transport, const std::vector<std::string>& hosts,
                             const std::string& mine, const RankGpus& gpus = {});

}  // namespace spillway::split
