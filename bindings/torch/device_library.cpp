#include "device_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "spillway/base/error.h"
#include "spillway/base/log.h"
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
  std::string path = here.dli_fname;
  const std::string suffix = ".so";
  const auto end = path.rfind(suffix);
  return end == std::string::npos ? std::string() : path.substr(0, end) + "_cuda" + suffix;
}

}  // namespace

bool has_torch_cuda() { return ::dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD) != nullptr; }

void open_cuda_library(const std::string& objection) {
  if (!has_torch_cuda()) return;
  objection_to_devices() = objection;
  if (!objection.empty()) return;
  const std::string path = path_of_cuda_library();
  if (path.empty() || ::access(path.c_str(), R_OK) != 0) {
    objection_to_devices() = "this Spillway was built without CUDA";
    return;
  }
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr)
    throw UnsupportedError("cannot load the library for CUDA: {}", ::dlerror());
  const auto serve = reinterpret_cast<void (*)()>(::dlsym(library, kServeCuda));
  if (serve == nullptr) throw UnsupportedError("{} is of another build; install it again", path);
  serve();
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
