#include "spillway/recompute/surroundings.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>

#include <cfenv>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "spillway/base/per_thread.h"

namespace spillway::recompute {
namespace {

// Kernels run in the trainer's keys, less those above them: autograd has seen the call, and what a
// kernel calls in its turn needs no graph.
constexpr c10::DispatchKeySet kAboveKernels = c10::autograd_dispatch_keyset_with_ADInplaceOrView;

constexpr std::array<at::Float32Op, 4> kFloat32Ops{at::Float32Op::ALL, at::Float32Op::CONV,
                                                   at::Float32Op::RNN, at::Float32Op::MATMUL};

// Replays under other flags of the process than the present ones go one by one.
std::mutex other_flags;

#if defined(__SSE__)
constexpr unsigned kControlBits = ~0x3Fu;  // The others tell of exceptions that have happened.

unsigned present_float_control() { return _mm_getcsr() & kControlBits; }
void set_float_control(unsigned bits) { _mm_setcsr((_mm_getcsr() & ~kControlBits) | bits); }
#else
unsigned present_float_control() { return static_cast<unsigned>(std::fegetround()); }
void set_float_control(unsigned bits) { std::fesetround(static_cast<int>(bits)); }
#endif

void take_cuda_flags(at::Context& context, Surroundings::Flags& flags) {
  for (std::size_t i = 0; i < kFloat32Ops.size(); ++i)
    flags.cuda_precision[i] =
        static_cast<int>(context.float32Precision(at::Float32Backend::CUDA, kFloat32Ops[i]));
  flags.cudnn = context.userEnabledCuDNN();
  flags.cudnn_benchmark = context.benchmarkCuDNN();
  flags.cudnn_benchmark_limit = context.benchmarkLimitCuDNN();
  flags.cudnn_deterministic = context.deterministicCuDNN();
  flags.fp16_products = static_cast<int>(context.allowFP16ReductionCuBLAS());
  flags.bf16_products = static_cast<int>(context.allowBF16ReductionCuBLAS());
  flags.fp16_accumulation = context.allowFP16AccumulationCuBLAS();
  flags.products_by = static_cast<int>(context.blasPreferredBackend());
  flags.solvers_by = static_cast<int>(context.linalgPreferredBackend());
}

void set_cuda_flags(at::Context& context, const Surroundings::Flags& flags) {
  for (std::size_t i = 0; i < kFloat32Ops.size(); ++i)
    context.setFloat32Precision(at::Float32Backend::CUDA, kFloat32Ops[i],
                                static_cast<at::Float32Precision>(flags.cuda_precision[i]));
  context.setUserEnabledCuDNN(flags.cudnn);
  context.setBenchmarkCuDNN(flags.cudnn_benchmark);
  context.setBenchmarkLimitCuDNN(flags.cudnn_benchmark_limit);
  context.setDeterministicCuDNN(flags.cudnn_deterministic);
  using Option = at::CuBLASReductionOption;
  const auto reduces = [](int option) {
    return static_cast<Option>(option) == Option::AllowReducedPrecisionWithSplitK;
  };
  const auto splits = [](int option) {
    return static_cast<Option>(option) != Option::DisallowReducedPrecisionDisallowSplitK;
  };
  context.setAllowFP16ReductionCuBLAS(reduces(flags.fp16_products), splits(flags.fp16_products));
  context.setAllowBF16ReductionCuBLAS(reduces(flags.bf16_products), splits(flags.bf16_products));
  context.setAllowFP16AccumulationCuBLAS(flags.fp16_accumulation);
  if (static_cast<int>(context.blasPreferredBackend()) != flags.products_by)
    context.setBlasPreferredBackend(static_cast<at::BlasBackend>(flags.products_by));
  if (static_cast<int>(context.linalgPreferredBackend()) != flags.solvers_by)
    context.setLinalgPreferredBackend(static_cast<at::LinalgBackend>(flags.solvers_by));
}

Surroundings::Flags flags_of_process() {
  at::Context& context = at::globalContext();
  Surroundings::Flags flags;
  flags.default_dtype = c10::get_default_dtype_as_scalartype();
  flags.deterministic = context.deterministicAlgorithms();
  flags.deterministic_warns_only = context.deterministicAlgorithmsWarnOnly();
  flags.fills_uninitialized = context.deterministicFillUninitializedMemory();
  flags.mkldnn = context.userEnabledMkldnn();
  flags.deterministic_mkldnn = context.deterministicMkldnn();
  flags.nnpack = context.userEnabledNNPACK();
  flags.fp16_reduction = context.allowFP16ReductionCPU();
  for (std::size_t i = 0; i < kFloat32Ops.size(); ++i)
    flags.float32_precision[i] =
        static_cast<int>(context.float32Precision(at::Float32Backend::MKLDNN, kFloat32Ops[i]));
  take_cuda_flags(context, flags);
  return flags;
}

void set_flags(const Surroundings::Flags& flags) {
  at::Context& context = at::globalContext();
  c10::set_default_dtype(c10::scalarTypeToTypeMeta(flags.default_dtype));
  context.setDeterministicAlgorithms(flags.deterministic, flags.deterministic_warns_only);
  context.setDeterministicFillUninitializedMemory(flags.fills_uninitialized);
  context.setUserEnabledMkldnn(flags.mkldnn);
  context.setDeterministicMkldnn(flags.deterministic_mkldnn);
  context.setUserEnabledNNPACK(flags.nnpack);
  context.setAllowFP16ReductionCPU(flags.fp16_reduction);
  for (std::size_t i = 0; i < kFloat32Ops.size(); ++i)
    context.setFloat32Precision(at::Float32Backend::MKLDNN, kFloat32Ops[i],
                                static_cast<at::Float32Precision>(flags.float32_precision[i]));
  set_cuda_flags(context, flags);
}

void set_thread(const Surroundings& from, const Surroundings& to) {
  c10::GradMode::set_enabled(to.grad_mode);
  at::autocast::set_autocast_dtype(at::kCPU, to.autocast_dtype);
  at::autocast::set_autocast_dtype(at::kCUDA, to.cuda_autocast_dtype);
  if (from.threads != to.threads) at::set_num_threads(to.threads);
  if (from.float_control != to.float_control) set_float_control(to.float_control);
}

}  // namespace

std::shared_ptr<const Surroundings> Surroundings::of_this_thread() {
  struct Latest {
    std::shared_ptr<const Surroundings> seen;
  };
  auto& latest = per_thread<Latest>().seen;
  Surroundings now;
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  now.included_keys = keys.included_;
  now.excluded_keys = keys.excluded_;
  now.grad_mode = c10::GradMode::is_enabled();
  now.autocast_dtype = at::autocast::get_autocast_dtype(at::kCPU);
  now.cuda_autocast_dtype = at::autocast::get_autocast_dtype(at::kCUDA);
  now.threads = at::get_num_threads();
  now.float_control = present_float_control();
  now.flags = flags_of_process();
  if (latest == nullptr || *latest != now) latest = std::make_shared<const Surroundings>(now);
  return latest;
}

SurroundingsGuard::SurroundingsGuard(const Surroundings& wanted, c10::DispatchKeySet hidden)
    : own_(Surroundings::of_this_thread()),
      wanted_(wanted),
      own_keys_(c10::impl::tls_local_dispatch_key_set()),
      own_autocast_cache_(at::autocast::is_autocast_cache_enabled()) {
  if (own_->flags != wanted_.flags) {
    flags_lock_ = std::unique_lock(other_flags);
    set_flags(wanted_.flags);
  }
  set_thread(*own_, wanted_);
  // It would keep casts of tensors that are gone after the replay.
  at::autocast::set_autocast_cache_enabled(false);
  auto keys = own_keys_;
  keys.included_ = wanted_.included_keys - hidden;
  keys.excluded_ = wanted_.excluded_keys | kAboveKernels | hidden;
  c10::impl::_force_tls_local_dispatch_key_set(keys);
}

SurroundingsGuard::~SurroundingsGuard() {
  c10::impl::_force_tls_local_dispatch_key_set(own_keys_);
  at::autocast::set_autocast_cache_enabled(own_autocast_cache_);
  set_thread(wanted_, *own_);
  if (flags_lock_.owns_lock()) set_flags(own_->flags);
}

}  // namespace spillway::recompute
