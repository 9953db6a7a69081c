#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "cpu_call.h"
#include "results.h"

namespace spillway::emulated {

/// A call that runs on the worker of its stream.
struct StreamJob {
  CpuCall call;
  std::shared_ptr<const ResultPlan> plan;
  std::vector<Target> targets;
  void* workspace;
  std::size_t workspace_bytes;
  bool has_gradients;  ///< The mode of the thread that called: kernels are chosen by it.
};

/// Runs the job behind all that the stream was given before, or at each launch of the graph that
/// the stream is captured into. An exception of the kernel ends the
/// process with the name of the operator, as nobody could take it.
void enqueue(cudaStream_t stream, StreamJob job);

}  // namespace spillway::emulated
