#include "device_library.h"

#include <dlfcn.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <string>

#include "spillway/base/error.h"
#include "spillway/base/log.h"
#include "spillway/device/device_span.h"
#include "spillway/preload/active.h"
#include "spillway/preload/cuda_part.h"
#include "spillway/runtime/endings.h"
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
  if (::dladdr(reinterpret_cast<void*>(&has_torch_cuda), &here) == 0 || here.dli_fname == nullptr)
    return {};
  return preload::cuda_part_of(here.dli_fname);
}

/// A budget that nobody would keep is refused, as it may be what the machine can bear.
void refuse_budgets_without_cuda(const runtime::Settings& settings, const std::string& why) {
  for (const runtime::DeviceBudget& each : settings.device_budgets)
    if (each.device.rfind(device::name_of(device::DeviceKind::kCuda), 0) == 0)
      throw UnsupportedError("the budget of {} cannot be kept: {}", each.device, why);
}

}  // namespace

bool has_torch_cuda() { return ::dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD) != nullptr; }

void (*open_cuda_library(runtime::Run& run))() {
  if (!has_torch_cuda()) {
    run.why_no_gpu = [] { return runtime::NoGpu{"its LibTorch is for the CPU alone"}; };
    return nullptr;
  }
  const std::string path = path_of_cuda_library();
  if (path.empty() || ::access(path.c_str(), R_OK) != 0) {
    const std::string minor = message("{}.{}", TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR);
    leave_devices(message("this Spillway has no part for CUDA beside its core for LibTorch {} ({})",
                          minor, preload::cure_without_cuda_part(minor)));
    refuse_budgets_without_cuda(run.settings(), objection_to_devices());
    return nullptr;
  }
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr)
    throw UnsupportedError("cannot load the library for CUDA: {}", ::dlerror());
  const auto serve = reinterpret_cast<void (*)()>(::dlsym(library, kServeCuda));
  const auto why_none = reinterpret_cast<void (*)(runtime::NoGpu&)>(::dlsym(library, kWhyNoGpu));
  if (serve == nullptr || why_none == nullptr)
    throw UnsupportedError("{} is of another build; install it again", path);
  run.why_no_gpu = [why_none] {
    runtime::NoGpu none;
    why_none(none);
    return none;
  };
  leave_devices({});
  return serve;
}

void leave_devices(const std::string& objection) { objection_to_devices() = objection; }

void tell_of_unserved_device() {
  // Small tensors come first, and their device is served from the first one on.
  if (objection_to_devices().empty() || is_told.exchange(true)) return;
  log_warning("CUDA tensors are left to LibTorch, and no budget limits them: {}",
              objection_to_devices());
}

void tell_of_refused_device(const Error& reason) {
  static auto& told = *new std::set<std::string>();
  split::SplitProgram::refuse_gpu(reason.what());
  run_of_this_process().refuse_device();
  // The program may catch it, and do something else with the GPU that it was to have.
  if (told.insert(reason.what()).second) log_error("{}", reason.what());
  // By then it runs and has output, buffers and functions at exit of its own: so it is not ended
  // here, as it would have been at the start, but by the exception. Few C++ programs catch any.
  if (spillway_is_active() != 0) runtime::exit_on_uncaught(reason.what());
}

}  // namespace spillway::torch_binding
