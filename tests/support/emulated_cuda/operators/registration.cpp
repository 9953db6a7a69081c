// Puts the emulation where the kernels of CUDA are: under the key CUDA itself, below whoever
// intercepts operators.
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "emulated_operator.h"
#include "flat_weights.h"
#include "names.h"

namespace spillway::emulated {
namespace {

using c10::DispatchKey;

// They launch nothing: what LibTorch does for a GPU is what tests want to see. Views are found by
// their schemas.
constexpr std::array<std::string_view, 13> kReal = {"aten::empty",
                                                    "aten::empty_strided",
                                                    "aten::_local_scalar_dense",
                                                    "aten::record_stream",
                                                    "aten::set_",
                                                    "aten::resize_",
                                                    "aten::_efficientzerotensor",
                                                    "aten::is_set_to",
                                                    "aten::_pin_memory",
                                                    "aten::is_pinned",
                                                    "aten::_use_cudnn_ctc_loss",
                                                    "aten::_use_miopen_ctc_loss",
                                                    "aten::_fused_sdp_choice"};

// Composites for CUDA that come down to functions of cuDNN, and copies, which choose by device.
constexpr std::array<std::string_view, 4> kBesides = {"aten::convolution", "aten::_convolution",
                                                      "aten::convolution_backward", "aten::copy_"};

bool makes_views(const c10::FunctionSchema& schema) {
  const auto& results = schema.returns();
  return !results.empty() &&
         std::all_of(results.begin(), results.end(), [](const c10::Argument& result) {
           return result.alias_info() != nullptr && !result.alias_info()->isWrite();
         });
}

bool is_emulated(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  if (name.rfind("aten::", 0) != 0 || holds(kReal, name) || makes_views(op.schema())) return false;
  return op.hasKernelForDispatchKey(DispatchKey::CUDA) || holds(kBesides, name);
}

/// For operators that only CUDA has, and that no mapping takes the place of.
class Refusal final : public c10::OperatorKernel {
 public:
  explicit Refusal(std::string name) : name_(std::move(name)) {}
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*) {
    TORCH_CHECK(false, "emulated CUDA: ", name_,
                " has no kernel for the CPU and no mapping; a mapping goes into ",
                "operators/mappings");
  }

 private:
  std::string name_;
};

torch::CppFunction kernel_for(const c10::OperatorHandle& op) {
  OperatorFacts facts = facts_of(op);
  if (facts.name == "aten::_cudnn_rnn_flatten_weight")
    return torch::CppFunction::makeFromBoxedFunction<&flatten_weights>();
  if (facts.mapping == nullptr && !op.hasComputedKernelForDispatchKey(DispatchKey::CPU))
    return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Refusal>(facts.name));
  return torch::CppFunction::makeFromBoxedFunctor(
      std::make_unique<EmulatedOperator>(std::move(facts)));
}

/// LibTorch warns of each kernel that is replaced.
class Silence final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

class Registration {
 public:
  Registration() {
    // Never destroyed: operators may run until the process ends.
    auto* library =
        new torch::Library(torch::Library::IMPL, "aten", DispatchKey::CUDA, __FILE__, __LINE__);
    Silence silence;
    const c10::WarningUtils::WarningHandlerGuard guard(&silence);
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
      const auto op = c10::Dispatcher::singleton().findSchema(name);
      if (!op || !is_emulated(*op)) continue;
      const std::string overload = name.overload_name.empty() ? "" : "." + name.overload_name;
      library->impl((name.name + overload).c_str(), kernel_for(*op));
    }
  }

  /// Before LibTorch is taken down.
  ~Registration() {
    for (c10::DeviceIndex device = 0; device < c10::cuda::device_count(); ++device) {
      cudaSetDevice(device);
      cudaDeviceSynchronize();
    }
  }
};

const Registration registration;

}  // namespace
}  // namespace spillway::emulated
