#include "device_library.h"

#include <dlfcn.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "spillway/base/error.h"
#include "spillway/base/log.h"
#include "spillway/device/device_span.h"
#include "spillway/preload/cuda_part.h"
#include "spillway/split/split_program.h"

namespace spillway::torch_binding {
namespace {

std::atomic<bool> is_told{false};

/// Why tensors on devices are not served.
std::string& objection_to_devices() {
  static auto& text = *new std::string("LibTorch's CUDA part was loaded after Spillway");
  return text;
}

/// "/usr/lib/libspillway_core_2.11_cuda.so"; empty: the loader does not know where this one lies.
std::string path_of_cuda_library() {
  Dl_info here{};
  if (::dladdr(reinterpret_cast<void*>(&open_cuda_library), &here) == 0 ||
      here.dli_fname == nullptr)
    return {};
  return preload::cuda_part_of(here.dli_fname);
}

/// A budget that nobody would keep is refused, as it may be what the machine can bear.
void refuse_budgets_without_cuda(const std::string& why) {
  for (const runtime::DeviceBudget& each : run_of_this_process().settings().device_budgets)
    if (each.device.rfind(device::name_of(device::DeviceKind::kCuda), 0) == 0)
      throw UnsupportedError("the budget of {} cannot be kept: {}", each.device, why);
}

}  // namespace

bool has_torch_cuda() { return ::dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD) != nullptr; }

void open_cuda_library(const std::string& objection) {
  if (!has_torch_cuda()) {
    run_of_this_process().why_no_gpu = [] { return "its LibTorch is for the CPU alone"; };
    return;
  }
  objection_to_devices() = objection;
  const std::string path = path_of_cuda_library();
  if (path.empty() || ::access(path.c_str(), R_OK) != 0) {
    if (!objection.empty()) return;
    const std::string minor = message("{}.{}", TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR);
    objection_to_devices() =
        message("this Spillway has no part for CUDA beside its core for LibTorch {} ({})", minor,
                preload::cure_without_cuda_part(minor));
    refuse_budgets_without_cuda(objection_to_devices());
    return;
  }
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr)
    throw UnsupportedError("cannot load the library for CUDA: {}", ::dlerror());
  const auto serve = reinterpret_cast<void (*)()>(::dlsym(library, kServeCuda));
  const auto why_none = reinterpret_cast<void (*)(std::string&)>(::dlsym(library, kWhyNoGpu));
  if (serve == nullptr || why_none == nullptr)
    throw UnsupportedError("{} is of another build; install it again", path);
  run_of_this_process().why_no_gpu = [why_none] {
    std::string why;
    why_none(why);
    return why;
  };
  if (objection.empty()) serve();
}

void tell_of_unserved_device() {
  // Small tensors come first, and their device is served from the first one on.
  if (objection_to_devices().empty() || is_told.exchange(true)) return;
  log_warning("CUDA tensors are left to LibTorch, and no budget limits them: {}",
              objection_to_devices());
}

void tell_of_refused_device(const std::string& reason) {
  static std::atomic<bool> is_refused{false};
  split::SplitProgram::refuse_gpu(reason);
  // The program may catch it, and do something else with the GPU that it was to have.
  if (!is_refused.exchange(true)) log_error("{}", reason);
}

}  // namespace spillway::torch_binding
