#pragma once

#include <driver_types.h>

#include <string>

namespace spillway::emulated {

/// Ends the process with "emulated CUDA: <text>" on stderr: a rule of CUDA was broken in a way that
/// a GPU answers with garbage or with a lost context.
[[noreturn]] void die(const std::string& text);

/// What a function of CUDA returns when it refuses. Remembered for this thread's cudaGetLastError;
/// `text` is appended to its cudaGetErrorString.
cudaError_t fail(cudaError_t error, std::string text = {});

/// The last error of this thread, and its text.
struct LastError {
  cudaError_t error = cudaSuccess;
  std::string text;
};
LastError& last_error();

/// As 0x7f....
std::string hex(const void* address);

}  // namespace spillway::emulated
