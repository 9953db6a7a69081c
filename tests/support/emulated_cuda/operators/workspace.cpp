#include "workspace.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <tuple>

#include "names.h"
#include "support/emulated_cuda/runtime/emulation.h"

// Declared here, as the header that does (ATen/cuda/CUDAContextLight.h) wants those of cuBLAS and
// cuSPARSE.
namespace at::cuda {
struct WorkspaceMapWithMutex {
  std::map<std::tuple<void*, void*>, at::DataPtr> map;
  std::shared_mutex mutex;
};
WorkspaceMapWithMutex& cublas_handle_stream_to_workspace();
size_t getChosenWorkspaceSize();
}  // namespace at::cuda

namespace spillway::emulated {
namespace {

constexpr std::array<std::string_view, 8> kMatrixProducts = {
    "aten::mm",  "aten::addmm",   "aten::addmm_",   "aten::_addmm_activation",
    "aten::bmm", "aten::baddbmm", "aten::baddbmm_", "aten::addmv"};
constexpr std::array<std::string_view, 3> kConvolutions = {
    "aten::convolution", "aten::_convolution", "aten::convolution_backward"};
constexpr std::size_t kLargestConvolution = std::size_t(32) << 20;

/// Kept where LibTorch keeps it, so that its own clearCublasWorkspaces() gives it back.
std::pair<void*, std::size_t> block_of_stream(c10::cuda::CUDAStream stream) {
  static std::array<char, C10_COMPILE_TIME_MAX_GPUS> handles{};  // One cuBLAS handle a device.
  auto& kept = at::cuda::cublas_handle_stream_to_workspace();
  const auto key =
      std::make_tuple(static_cast<void*>(&handles.at(std::size_t(stream.device_index()))),
                      static_cast<void*>(stream.stream()));
  static const std::size_t bytes = at::cuda::getChosenWorkspaceSize();
  {
    const std::shared_lock lock(kept.mutex);
    const auto found = kept.map.find(key);
    if (found != kept.map.end()) return {found->second.get(), bytes};
  }
  // Not under the lock: an allocator that makes room may run operators.
  c10::DataPtr block = c10::cuda::CUDACachingAllocator::get()->allocate(bytes);
  const std::unique_lock lock(kept.mutex);
  return {kept.map.try_emplace(key, std::move(block)).first->second.get(), bytes};
}

}  // namespace

WorkspaceKind workspace_of(std::string_view operator_name) {
  if (holds(kMatrixProducts, operator_name)) return WorkspaceKind::kMatrixProduct;
  if (holds(kConvolutions, operator_name)) return WorkspaceKind::kConvolution;
  return WorkspaceKind::kNone;
}

Workspace::Workspace(WorkspaceKind kind, c10::cuda::CUDAStream stream, std::size_t hint) {
  if (kind == WorkspaceKind::kMatrixProduct) std::tie(begin_, bytes_) = block_of_stream(stream);
  if (kind != WorkspaceKind::kConvolution || hint == 0) return;
  try {
    bytes_ = std::min(hint, kLargestConvolution);
    own_ = c10::cuda::CUDACachingAllocator::get()->allocate(bytes_);
    begin_ = own_.get();
  } catch (const c10::OutOfMemoryError&) {
    bytes_ = 0;  // cuDNN then has another algorithm.
  }
}

void scribble(void* begin, std::size_t bytes, const char* operator_name) {
  if (bytes == 0) return;
  emu_cuda_check(begin, bytes, operator_name);
  constexpr int kMark = 0x5A;
  constexpr std::size_t kPart = 256;
  const std::size_t part = std::min(bytes, kPart);
  std::memset(begin, kMark, part);
  std::memset(static_cast<char*>(begin) + bytes - part, kMark, part);
}

}  // namespace spillway::emulated
