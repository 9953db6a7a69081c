#include "spillway/planner/job/model_identity.h"
#include "spillway/base/mix.h"

#include "spillway/base/error.h"
#include "spillway/base/json_reader.h"
#include "spillway/base/shown_text.h"

namespace spillway::planner {

ModelIdentity identity_of(const ModelChain& chain) {
  ModelIdentity identity;
  identity.layers = static_cast<std::uint32_t>(chain.layers.size());
  for (const ModelLayer& layer : chain.layers) {
    for (const char letter : layer.name)
      identity.name_hash = mix(identity.name_hash, static_cast<unsigned char>(letter));
    // Names end somewhere: "a", "bc" is not "ab", "c".
    identity.name_hash = mix(identity.name_hash, layer.name.size());
  }
  return identity;
}

void require_same_model(const ModelIdentity& planned, const std::string& plan,
                        const ModelChain& chain, const std::string& profile) {
  const ModelIdentity here = identity_of(chain);
  if (planned == here) return;
  throw PlanError("{}: this plan is of another model: {} layers, whose names have the hash {}, and "
                  "{} has {} with {} (make the plan again with: spillway plan {} --ranks COUNT "
                  "--out {})",
                  plan, planned.layers, hexadecimal_text(planned.name_hash), profile, here.layers,
                  hexadecimal_text(here.name_hash), shell_word(profile), shell_word(plan));
}

}  // namespace spillway::planner
