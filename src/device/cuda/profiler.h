#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "spillway/base/bytes.h"

namespace spillway::device {

/// For profilers as Nsight Systems, by NVTX, in its domain "Spillway": a range of this thread, as
/// long as this lives. They set it beside what the GPU was given meanwhile. Costs some nanoseconds
/// where nobody looks, and nothing in builds without NVTX's headers. One thread.
class ProfilerRange {
 public:
  /// `name` stays. `size` is the range's payload, in bytes.
  ProfilerRange(const char* name, Bytes size);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

/// The name that profilers show for a stream.
void name_for_profilers(cudaStream_t stream, const std::string& name);

}  // namespace spillway::device
