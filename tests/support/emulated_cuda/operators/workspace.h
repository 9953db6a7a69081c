#pragma once

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAStream.h>

#include <cstddef>
#include <string_view>

namespace spillway::emulated {

enum class WorkspaceKind : std::uint8_t {
  kNone,
  kMatrixProduct,  ///< As cuBLAS has it: one block a stream, which stays.
  kConvolution,    ///< As cuDNN has it: a block for the time of the call.
};

/// By the name without overload, as in aten::mm.
WorkspaceKind workspace_of(std::string_view operator_name);

/// Memory of the device that a call takes beside its results.
class Workspace {
 public:
  Workspace() = default;
  /// Asks the allocator of the device that is current for it. A convolution does without where
  /// memory is short; `hint` is the size in bytes that it would like.
  Workspace(WorkspaceKind kind, c10::cuda::CUDAStream stream, std::size_t hint);

  void* begin() const { return begin_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void* begin_ = nullptr;
  std::size_t bytes_ = 0;
  c10::DataPtr own_;  ///< Goes back to the allocator when the call has been enqueued, as the order
                      ///< of the stream allows.
};

/// Writes into it, as a kernel would: memory that is not there is noticed.
void scribble(void* begin, std::size_t bytes, const char* operator_name);

}  // namespace spillway::emulated
