#include "device_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <string>

#include "spillway/base/error.h"

namespace spillway::torch_binding {
namespace {

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

void open_cuda_library() {
  if (::dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD) == nullptr) return;
  const std::string path = path_of_cuda_library();
  if (path.empty() || ::access(path.c_str(), R_OK) != 0) return;
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr)
    throw UnsupportedError("cannot load the library for CUDA: {}", ::dlerror());
  const auto serve = reinterpret_cast<void (*)()>(::dlsym(library, kServeCuda));
  if (serve == nullptr) throw UnsupportedError("{} is of another build; install it again", path);
  serve();
}

}  // namespace spillway::torch_binding
