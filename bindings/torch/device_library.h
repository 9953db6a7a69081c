#pragma once

#include <string>

#include "spillway/base/error.h"
#include "spillway/runtime/run.h"

namespace spillway::torch_binding {

/// Whether the program has LibTorch's CUDA part.
bool has_torch_cuda();

/// Where it has, opens the library that serves its tensors, if it is installed beside this one, and
/// returns what begins to; else null. Throws UnsupportedError where it cannot be opened, and where
/// it is missing and a GPU was given a budget. Once, before the program has a CUDA tensor.
void (*open_cuda_library(runtime::Run& run))();

/// CUDA tensors are left to LibTorch for that reason.
void leave_devices(const std::string& objection);

/// Warns once that no budget limits CUDA tensors, and why. For tensors on a device that no runtime
/// rules.
void tell_of_unserved_device();

/// Whether this is a child of fork(2), to which nothing of the runtimes is left.
bool is_forked_child() noexcept;

/// A device cannot be served, whose allocation throws that. Told once; in a rank, whose others
/// would go on, it ends the job. A C++ program under the command that does not catch it exits with
/// 2, as it would have at the start had the card been known then. Not on two threads at once.
void tell_of_refused_device(const Error& reason);

/// The run that devices are added to; there is one.
runtime::Run& run_of_this_process();

/// Of that library: `void()`, which begins to serve.
inline constexpr const char* kServeCuda = "spillway_serve_cuda";
/// Of that library: `void(runtime::NoGpu&)`, which says why the process sees no GPU.
inline constexpr const char* kWhyNoGpu = "spillway_why_no_gpu";

}  // namespace spillway::torch_binding
