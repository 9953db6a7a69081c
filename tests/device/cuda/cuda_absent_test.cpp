// A process that has no runtime of CUDA 13, and gets to know why.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include "spillway/device/cuda/cuda_backend.h"

namespace spillway::device {
namespace {

using testing::HasSubstr;

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
  EXPECT_THAT(status.reason, HasSubstr("CUDA's runtime cannot be loaded ("));
  EXPECT_THAT(status.reason, HasSubstr("name the folder of libcudart.so.13 in LD_LIBRARY_PATH"));
  EXPECT_EQ(cuda_facts().reason, status.reason);
}

TEST(CudaRuntime, OfAnotherReleaseIsNamed) {
  const Loaded other(SPILLWAY_CUDART_12);
  EXPECT_EQ(cuda_backend().probe().reason,
            "the program uses libcudart.so.12, and this version of Spillway serves CUDA 13: take a "
            "LibTorch that was built for CUDA 13 (cu130)");
}

/// As those of LibTorch's zip archives, which every program has among what it is linked with.
TEST(CudaRuntime, OfAnotherReleaseIsFoundUnderANameOfLibTorchs) {
  const Loaded other(SPILLWAY_RENAMED_CUDART_12, RTLD_GLOBAL);
  EXPECT_EQ(cuda_backend().probe().reason,
            "the program uses libcudart-1a2b3c4d.so.12 (CUDA 12.8), and this version of Spillway "
            "serves CUDA 13: take a LibTorch that was built for CUDA 13 (cu130)");
}

TEST(CudaRuntime, IsFoundUnderANameOfLibTorchs) {
  const Loaded renamed(SPILLWAY_RENAMED_CUDART_13, RTLD_GLOBAL);
  EXPECT_EQ(cuda_backend().probe().reason,
            "libcudart-1a2b3c4d.so.13 has no cudaDeviceCanAccessPeer: take that of CUDA 13");
}

TEST(CudaRuntime, ThatLacksAFunctionIsNamed) {
  const Loaded empty(SPILLWAY_EMPTY_CUDART_13);
  EXPECT_EQ(cuda_backend().probe().reason,
            "libcudart.so.13 has no cudaDeviceCanAccessPeer: take that of CUDA 13");
}

}  // namespace
}  // namespace spillway::device
