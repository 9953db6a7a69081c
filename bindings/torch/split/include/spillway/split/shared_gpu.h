#pragma once

#include <functional>
#include <string>
#include <vector>

#include "spillway/split/refusals.h"
#include "spillway/transport/transport.h"

namespace spillway::split {

/// By the environment of this rank, for `agree_on_refusals`. `has_cuda`: the program may use a GPU;
/// `has_share`: see RankGpus.
RankGpus gpus_of_rank(bool has_cuda, bool has_share);

/// Where on its host the GPU is that this rank calls cuda:0; empty: it has none. Starts CUDA.
std::string address_of_gpu();

/// Before a job begins, of what `agree_on_refusals` has returned: how many ranks have that GPU,
/// this one included; 0: that is not known, and this rank has not asked. Where a rank has asked and
/// may share it, waits for all ranks, and calls `address` on those that may.
unsigned ranks_on_gpu(transport::Transport& transport, const std::vector<std::string>& hosts,
                      bool has_share, CommonGpus common,
                      const std::function<std::string()>& address = &address_of_gpu);

}  // namespace spillway::split
