// Functions of cuDNN that LibTorch calls above the dispatcher, to see whether the weights of a
// recurrent network lie in one block as cuDNN wants them. Here they never do: LibTorch then hands
// over the single weights. This library comes before the stub of libcudnn, whose functions end the
// process.
#include <cstddef>
#include <cstdint>

namespace {

constexpr int kSuccess = 0;
char something;

int make(void** descriptor) {
  *descriptor = &something;
  return kSuccess;
}

}  // namespace

#define SPILLWAY_CUDNN extern "C" [[gnu::visibility("default")]] int

SPILLWAY_CUDNN cudnnCreate(void** handle) { return make(handle); }
SPILLWAY_CUDNN cudnnDestroy(void*) { return kSuccess; }
SPILLWAY_CUDNN cudnnSetStream(void*, void*) { return kSuccess; }
SPILLWAY_CUDNN cudnnCreateRNNDescriptor(void** descriptor) { return make(descriptor); }
SPILLWAY_CUDNN cudnnDestroyRNNDescriptor(void*) { return kSuccess; }
SPILLWAY_CUDNN cudnnSetRNNDescriptor_v8() { return kSuccess; }
SPILLWAY_CUDNN cudnnCreateDropoutDescriptor(void** descriptor) { return make(descriptor); }
SPILLWAY_CUDNN cudnnDestroyDropoutDescriptor(void*) { return kSuccess; }
SPILLWAY_CUDNN cudnnSetDropoutDescriptor() { return kSuccess; }
SPILLWAY_CUDNN cudnnCreateTensorDescriptor(void** descriptor) { return make(descriptor); }
SPILLWAY_CUDNN cudnnDestroyTensorDescriptor(void*) { return kSuccess; }
SPILLWAY_CUDNN cudnnSetTensorNdDescriptor() { return kSuccess; }

/// More bytes than any storage has.
SPILLWAY_CUDNN cudnnGetRNNWeightSpaceSize(void*, void*, std::size_t* bytes) {
  *bytes = std::size_t(1) << 60;
  return kSuccess;
}
