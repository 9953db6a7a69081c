#pragma once

#include <string>
#include <vector>

#include "spillway/planner/partition/model_chain.h"

namespace spillway {

/// A model with branches, in the order in which its program would run it.
struct BranchedModel {
  std::string name;
  partition::ModelChain chain;
};

/// Made-up times and sizes on the graphs of known kinds of models: two towers, Inception, NAS
/// cells, a U-Net with gates on its skip connections, experts side by side.
std::vector<BranchedModel> branched_models();

}  // namespace spillway
