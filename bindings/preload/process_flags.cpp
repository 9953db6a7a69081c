// Flags of LibTorch that hold for the whole process, as the program sets them: the core hears of it
// before, since operators that wait in a queue are to run as they were called.

#include "process_flags.h"

#include "next_definition.h"
#include "registered_hooks.h"

namespace spillway::preload {
namespace {

decltype(SpillwayHooks::before_flag) before_flag = nullptr;  // Written once, read from any thread.

// All take up to four arguments, in registers, and return nothing; what a function lacks is what
// the registers happen to hold.
using Setter = void (*)(long first, long second, long third, long fourth);

}  // namespace

void watch_process_flags(const SpillwayHooks& hooks) {
  __atomic_store_n(&before_flag, hooks.before_flag, __ATOMIC_RELEASE);
}

#define SPILLWAY_FLAG(FUNCTION, SYMBOL)                                                     \
  extern "C" SPILLWAY_VISIBLE void FUNCTION(long, long, long, long) __asm__(SYMBOL);        \
  void FUNCTION(long first, long second, long third, long fourth) {                         \
    const auto announce = __atomic_load_n(&before_flag, __ATOMIC_ACQUIRE);                  \
    if (announce != nullptr) announce();                                                    \
    reinterpret_cast<Setter>(next_definition(SYMBOL, SYMBOL, __builtin_return_address(0)))( \
        first, second, third, fourth);                                                      \
  }

// void c10::set_default_dtype(caffe2::TypeMeta), and those of at::Context that kernels ask for.
SPILLWAY_FLAG(spillway_set_default_dtype, "_ZN3c1017set_default_dtypeEN6caffe28TypeMetaE")
SPILLWAY_FLAG(spillway_set_deterministic, "_ZN2at7Context26setDeterministicAlgorithmsEbb")
SPILLWAY_FLAG(spillway_set_fills, "_ZN2at7Context39setDeterministicFillUninitializedMemoryEb")
SPILLWAY_FLAG(spillway_set_mkldnn, "_ZN2at7Context20setUserEnabledMkldnnEb")
SPILLWAY_FLAG(spillway_set_deterministic_mkldnn, "_ZN2at7Context22setDeterministicMkldnnEb")
SPILLWAY_FLAG(spillway_set_nnpack, "_ZN2at7Context20setUserEnabledNNPACKEb")
SPILLWAY_FLAG(spillway_set_fp16_reduction, "_ZN2at7Context24setAllowFP16ReductionCPUEb")
SPILLWAY_FLAG(
    spillway_set_float32_precision,
    "_ZN2at7Context19setFloat32PrecisionENS_14Float32BackendENS_9Float32OpENS_16Float32PrecisionE")
SPILLWAY_FLAG(spillway_set_float32_products,
              "_ZN2at7Context25setFloat32MatmulPrecisionERKNSt7__cxx1112basic_stringIcSt11char_"
              "traitsIcESaIcEEE")
// Of kernels on GPUs.
SPILLWAY_FLAG(spillway_set_cudnn, "_ZN2at7Context19setUserEnabledCuDNNEb")
SPILLWAY_FLAG(spillway_set_deterministic_cudnn, "_ZN2at7Context21setDeterministicCuDNNEb")
SPILLWAY_FLAG(spillway_set_benchmark_cudnn, "_ZN2at7Context17setBenchmarkCuDNNEb")
SPILLWAY_FLAG(spillway_set_benchmark_limit, "_ZN2at7Context22setBenchmarkLimitCuDNNEi")
SPILLWAY_FLAG(spillway_set_tf32_cudnn, "_ZN2at7Context17setAllowTF32CuDNNEb")
SPILLWAY_FLAG(spillway_set_tf32_cublas, "_ZN2at7Context18setAllowTF32CuBLASEb")
SPILLWAY_FLAG(spillway_set_fp16_cublas, "_ZN2at7Context27setAllowFP16ReductionCuBLASEbb")
SPILLWAY_FLAG(spillway_set_bf16_cublas, "_ZN2at7Context27setAllowBF16ReductionCuBLASEbb")
SPILLWAY_FLAG(spillway_set_fp16_sums_cublas, "_ZN2at7Context30setAllowFP16AccumulationCuBLASEb")
SPILLWAY_FLAG(spillway_set_math_sdp, "_ZN2at7Context32setAllowFP16BF16ReductionMathSDPEb")
SPILLWAY_FLAG(spillway_set_blas, "_ZN2at7Context23setBlasPreferredBackendENS_11BlasBackendE")
SPILLWAY_FLAG(spillway_set_linalg, "_ZN2at7Context25setLinalgPreferredBackendENS_13LinalgBackendE")

}  // namespace spillway::preload
