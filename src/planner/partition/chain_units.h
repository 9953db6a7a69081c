#pragma once

#include <vector>

#include "ranked_sums.h"
#include "spillway/planner/partition/model_chain.h"

namespace spillway::planner {

/// The first layer of each unit (layers that stay together are one, others one each), and the
/// number of layers behind the last one.
std::vector<LayerIndex> first_layers_of_units(const ModelChain& chain);

/// Bytes of a layer's parameters as static ones: those that do not depend on versions of the
/// weights, those of each version.
SumPair static_pair(const ModelLayer& layer, double bytes);

}  // namespace spillway::planner
