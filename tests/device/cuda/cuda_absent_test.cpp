// A process that has no runtime of CUDA 13, and gets to know why.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "spillway/device/cuda/cuda_backend.h"
#include "support/golden_part.h"

namespace spillway::device {
namespace {

/// A library that the program has loaded meanwhile.
class Loaded {
 public:
  explicit Loaded(const char* path, int how = RTLD_LOCAL)
      : handle_(::dlopen(path, RTLD_NOW | how)) {
    EXPECT_NE(handle_, nullptr) << ::dlerror();
  }
  ~Loaded() { ::dlclose(handle_); }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;

 private:
  void* const handle_;
};

// LD_LIBRARY_PATH names a folder where it is no library, so that none of this system is taken.
TEST(CudaRuntime, IsAskedForByNameWhereNobodyHasLoadedIt) {
  const BackendStatus status = cuda_backend().probe();
  EXPECT_TRUE(status.devices.empty());
  GoldenPart golden;
  golden.mask(std::regex("cannot be loaded \\([^()]*\\)"), "cannot be loaded (REASON)");
  golden.add(status.reason);
  EXPECT_EQ(cuda_facts().reason, status.reason);
}

TEST(CudaRuntime, OfAnotherReleaseIsNamed) {
  const Loaded other(SPILLWAY_CUDART_12);
  GoldenPart().add(cuda_backend().probe().reason);
}

/// As those of LibTorch's zip archives, which every program has among what it is linked with.
TEST(CudaRuntime, OfAnotherReleaseIsFoundUnderANameOfLibTorchs) {
  const Loaded other(SPILLWAY_RENAMED_CUDART_12, RTLD_GLOBAL);
  GoldenPart().add(cuda_backend().probe().reason);
}

TEST(CudaRuntime, IsFoundUnderANameOfLibTorchs) {
  const Loaded renamed(SPILLWAY_RENAMED_CUDART_13, RTLD_GLOBAL);
  GoldenPart().add(cuda_backend().probe().reason);
}

TEST(CudaRuntime, ThatLacksAFunctionIsNamed) {
  const Loaded empty(SPILLWAY_EMPTY_CUDART_13);
  GoldenPart().add(cuda_backend().probe().reason);
}

}  // namespace
}  // namespace spillway::device
