// What a GPU is busy with while something else is measured.
#pragma once
#include <dlfcn.h>

#include "gpu.h"

/// What the blocks of `watch` saw: turns of their loop, and those that took longer than the limit.
struct Gaps {
  unsigned long long turns, long_turns, long_cycles, longest_cycles, cycles;
};

constexpr unsigned long long kLongTurn = 4000;  ///< Cycles: about 2 µs.

/// Reads words at random places until `ends` is set or the cycles are over, and notes turns that
/// take long. Without words it only reads the clock. One thread of each block.
__global__ void watch(const volatile int* ends, long long most_cycles, const unsigned* words,
                      unsigned long long count, unsigned turns_between_looks, Gaps* gaps) {
  if (threadIdx.x != 0) return;
  Gaps seen{};
  const long long start = clock64();
  unsigned long long place = blockIdx.x * 7919ULL + 1;
  unsigned sum = 0;
  long long last = clock64();
  while (true) {
    if (words != nullptr) {
      place = place * 6364136223846793005ULL + 1442695040888963407ULL;
      sum += __ldcg(words + (place >> 20) % (count - 1) + (sum & 1));  // Needs the word before.
    }
    const long long now = clock64();
    const unsigned long long turn = now - last;
    if (turn > kLongTurn) {
      ++seen.long_turns;
      seen.long_cycles += turn;
      if (turn > seen.longest_cycles) seen.longest_cycles = turn;
    }
    last = now;
    if (++seen.turns % turns_between_looks == 0) {
      if (*ends != 0 || now - start > most_cycles) break;
      last = clock64();  // The look goes over the bus.
    }
  }
  seen.cycles = clock64() - start;
  if (sum == 0xFFFFFFFFu) ++seen.turns;  // So that the words are read.
  gaps[blockIdx.x] = seen;
}

/// Reads all words and writes one of each thread.
__global__ void read_all(const uint4* words, std::size_t count, unsigned* sums) {
  unsigned sum = 0;
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const uint4 word = __ldcs(words + i);
    sum += word.x ^ word.y ^ word.z ^ word.w;
  }
  sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

/// Reads `reads` words of 16 bytes at random places in each thread.
__global__ void read_scattered(const uint4* words, std::size_t count, int reads, unsigned* sums) {
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned long long place = thread * 2654435761ULL + 12345;
  unsigned sum = 0;
  for (int i = 0; i < reads; ++i) {
    place = place * 6364136223846793005ULL + 1442695040888963407ULL;
    const uint4 word = __ldcg(words + (place >> 20) % count);
    sum += word.x ^ word.y ^ word.z ^ word.w;
  }
  sums[thread] = sum;
}

/// Numbers in bfloat16 between -2 and 2.
__global__ void fill_with_noise(unsigned short* words, std::size_t count) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const unsigned noise = static_cast<unsigned>((i * 6364136223846793005ULL) >> 32);
    words[i] = static_cast<unsigned short>(0x3F00u | (noise & 0x80FFu));
  }
}

/// Copies words, also to memory of the host.
__global__ void copy_words(uint4* to, const uint4* from, std::size_t count) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
    to[i] = from[i];
}

__global__ void nothing() {}

/// Sizes of launches that fill the device.
struct Shape {
  Shape() {
    GPU_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    GPU_CHECK(cudaMalloc(&sums, sizeof(unsigned) * processors * 8 * 256));
  }
  int processors = 0;
  unsigned* sums = nullptr;
};

inline const Shape& shape() {
  static const Shape known;
  return known;
}

inline void launch_read_all(const void* from, std::size_t bytes, cudaStream_t stream) {
  read_all<<<shape().processors * 8, 256, 0, stream>>>(static_cast<const uint4*>(from),
                                                       bytes / sizeof(uint4), shape().sums);
}

/// Square matrix products in bfloat16 by cuBLAS, opened at run time: its headers are not needed.
class Products {
 public:
  explicit Products(cudaStream_t stream, int size = 8192) : size_(size), stream_(stream) {
    void* library = dlopen("libcublas.so.13", RTLD_NOW);
    if (library == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::exit(1);
    }
    int (*create)(void**);
    int (*set_stream)(void*, cudaStream_t);
    find(library, "cublasCreate_v2", create);
    find(library, "cublasSetStream_v2", set_stream);
    find(library, "cublasGemmEx", multiply_);
    GPU_CHECK(create(&handle_));
    GPU_CHECK(set_stream(handle_, stream));
    for (auto& matrix : matrices_) {
      GPU_CHECK(cudaMalloc(&matrix, bytes()));
      fill_with_noise<<<1024, 256, 0, stream>>>(static_cast<unsigned short*>(matrix), bytes() / 2);
    }
    for (int i = 0; i < 3; ++i) launch();
    GPU_CHECK(cudaStreamSynchronize(stream));
  }
  ~Products() {
    for (void* matrix : matrices_) cudaFree(matrix);
  }
  void launch() {
    constexpr int kNoTranspose = 0, kBfloat16 = 14, kComputeFloat = 68, kDefault = -1;
    const float one = 1, zero = 0;
    GPU_CHECK(multiply_(handle_, kNoTranspose, kNoTranspose, size_, size_, size_, &one,
                        matrices_[0], kBfloat16, size_, matrices_[1], kBfloat16, size_, &zero,
                        matrices_[2], kBfloat16, size_, kComputeFloat, kDefault));
  }
  /// Seconds of one product, of a number of them in a row.
  double seconds(int count) {
    Stopwatch watch;
    watch.start(stream_);
    for (int i = 0; i < count; ++i) launch();
    return watch.stop(stream_) / count;
  }

 private:
  template <typename Function>
  static void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) std::exit(1);
  }
  std::size_t bytes() const { return std::size_t{2} * size_ * size_; }

  int size_;
  cudaStream_t stream_;
  void* handle_ = nullptr;
  void* matrices_[3] = {};
  int (*multiply_)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*,
                   int, int, const void*, void*, int, int, int, int) = nullptr;
};
