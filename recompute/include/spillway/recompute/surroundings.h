#pragma once

#include <c10/core/DispatchKeySet.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <memory>
#include <mutex>

namespace spillway::recompute {

/// What a kernel can see beside its arguments.
struct Surroundings {
  /// Those of the calling thread now. Shared with the call before when nothing has changed.
  static std::shared_ptr<const Surroundings> of_this_thread();

  bool operator==(const Surroundings&) const = default;

  // Of the thread.
  c10::DispatchKeySet included_keys;
  c10::DispatchKeySet excluded_keys;
  bool grad_mode = true;
  c10::ScalarType autocast_dtype = c10::ScalarType::BFloat16;
  c10::ScalarType cuda_autocast_dtype = c10::ScalarType::Half;
  int threads = 1;
  unsigned float_control = 0;  ///< Rounding, denormal numbers.

  // Of the process.
  struct Flags {
    bool operator==(const Flags&) const = default;
    c10::ScalarType default_dtype = c10::ScalarType::Float;
    bool deterministic = false;
    bool deterministic_warns_only = false;
    bool fills_uninitialized = false;
    bool mkldnn = true;
    bool deterministic_mkldnn = false;
    bool nnpack = true;
    bool fp16_reduction = false;
    std::array<int, 4> float32_precision{};  ///< Of oneDNN: all, convolutions, recurrent, products.
    // Of CUDA.
    std::array<int, 4> cuda_precision{};
    bool cudnn = true;
    bool cudnn_benchmark = false;
    int cudnn_benchmark_limit = 0;
    bool cudnn_deterministic = false;
    int fp16_products = 0;
    int bf16_products = 0;
    bool fp16_accumulation = false;
    int products_by = 0;
    int solvers_by = 0;
  } flags;
};

/// Gives the thread recorded surroundings, below autograd, and its own back at the end. Flags of
/// the process are only set where they differ; other threads see them then.
class SurroundingsGuard {
 public:
  /// `hidden`: keys that do not see the call.
  SurroundingsGuard(const Surroundings& wanted, c10::DispatchKeySet hidden);
  ~SurroundingsGuard();
  SurroundingsGuard(const SurroundingsGuard&) = delete;
  SurroundingsGuard& operator=(const SurroundingsGuard&) = delete;

 private:
  const std::shared_ptr<const Surroundings> own_;
  const Surroundings& wanted_;
  const c10::impl::LocalDispatchKeySet own_keys_;
  const bool own_autocast_cache_;
  std::unique_lock<std::mutex> flags_lock_;
};

}  // namespace spillway::recompute
