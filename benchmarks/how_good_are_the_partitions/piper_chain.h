#pragma once

#include <string>
#include <string_view>

#include "spillway/planner/partition/model_chain.h"

namespace spillway::quality {

/// Layers of costs as Piper's authors published them (Tarnawski et al., NeurIPS 2021; repository
/// msr-fiddle/piper), on one device each, plain or with all of a layer recomputed:
///
/// - `timePerSample` is forward and backward of a micro-batch in seconds; a third of it forward;
/// - a layer with y micro-batches in flight holds A·y + B bytes (`memoryUsageA`, `memoryUsageB`);
/// - B is what is there without a micro-batch: the weights of `parameterSize` bytes and, in the
///   published file, their gradients, which are as large. What B grows by with recomputation is one
///   layer's while it runs again.
///
/// Chains without tensors between layers: links are for others. `name` stands in errors. Throws
/// ConfigError for text that is none of these.
partition::ModelChain piper_chain(std::string_view text, const std::string& name);

}  // namespace spillway::quality
