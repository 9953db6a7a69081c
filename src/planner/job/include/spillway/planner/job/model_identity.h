#pragma once

#include <cstdint>
#include <string>

#include "spillway/planner/partition/model_chain.h"

namespace spillway::planner {

/// What tells one model from another in a plan for it: its layers, not what they take. So a plan
/// may be held against a later profile of the same model.
struct ModelIdentity {
  std::uint32_t layers = 0;
  std::uint64_t name_hash = 0;  ///< Hash of all names, in the order of the profile.

  bool operator==(const ModelIdentity&) const = default;
};

/// The same for equal names in every build and on every machine.
ModelIdentity identity_of(const ModelChain& chain);

/// Throws PlanError with both counts and hashes, where the model of the plan in the file `plan` is
/// not the chain, which the profile in the file `profile` has.
void require_same_model(const ModelIdentity& planned, const std::string& plan,
                        const ModelChain& chain, const std::string& profile);

}  // namespace spillway::planner
