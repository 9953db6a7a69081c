#pragma once

#include <string>

#include "spillway/planner/job/job_search.h"

namespace spillway::planner {

constexpr std::uint64_t kMega = 1'000'000;

/// Equal layers: forward 1 s, backward 2 s, 4 MB of parameters with gradients and one state, 10 MB
/// of stash, which 0.5 s recompute, and borders of 1 MB.
inline ModelChain even_chain(std::uint32_t layers) {
  ModelChain chain;
  for (LayerIndex i = 0; i < layers; ++i) {
    ModelLayer layer;
    layer.name = "layer " + std::to_string(i);
    layer.forward_seconds = 1.0;
    layer.backward_seconds = 2.0;
    layer.parameters = Bytes(4 * kMega);
    layer.static_ratio = 3.0;
    layer.stash = Bytes(10 * kMega);
    layer.recompute = {{0.5, Bytes()}};
    chain.layers.push_back(layer);
    if (i + 1 < layers) chain.borders.push_back({i, {i + 1}, Bytes(kMega)});
  }
  return chain;
}

inline JobRequest even_job(std::uint32_t layers, std::uint32_t ranks, std::uint32_t micro_batches,
                           std::string_view schedule = kAnySchedule) {
  JobRequest request;
  request.chain = even_chain(layers);
  request.ranks = ranks;
  request.micro_batches = micro_batches;
  request.schedule = schedule;
  return request;
}

/// The plan of a request that names its schedule.
inline JobPlan planned(const JobRequest& request) { return search_job(request).plan; }

/// What an error says, or "accepted".
template <typename Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace spillway::planner
