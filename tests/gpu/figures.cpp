// What a GPU does without Spillway, for `./test.sh --gpu` to compare with: a bare loop of
// cudaMemcpyAsync with pinned memory, alone and beside matrix products of LibTorch.
//
//   spillway_gpu_figures BLOCK_MIB BLOCKS ROUNDS PRODUCT_SIZE bfloat16|float
//
// Prints one line of JSON. Rates are medians in bytes per second, times in seconds.
#include <cuda_runtime_api.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(error));
}
#define CHECKED(call) check(call, #call)

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.at(values.size() / 2);
}

double seconds_between(cudaEvent_t begin, cudaEvent_t end) {
  float milliseconds = 0.0F;
  CHECKED(cudaEventElapsedTime(&milliseconds, begin, end));
  return std::max(milliseconds / 1e3, 1e-9);
}

/// Both directions of the link, a stream for each; LibTorch's products are on the default stream.
class Link {
 public:
  Link(std::size_t block, int blocks) : block_(block), blocks_(blocks) {
    for (cudaStream_t* stream : {&out_, &in_})
      CHECKED(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (cudaEvent_t* event : {&begin_, &out_end_, &in_end_}) CHECKED(cudaEventCreate(event));
    const std::size_t bytes = 2 * block * static_cast<std::size_t>(blocks);
    void* memory = nullptr;
    CHECKED(cudaMalloc(&memory, bytes));
    device_ = static_cast<char*>(memory);
    CHECKED(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault));
    host_ = static_cast<char*>(memory);
    CHECKED(cudaMemset(device_, 1, bytes));
    std::fill_n(host_, bytes, char{1});
    CHECKED(cudaDeviceSynchronize());
  }

  void start(bool goes_out, bool comes_in, int times) {
    CHECKED(cudaEventRecord(begin_, out_));
    CHECKED(cudaStreamWaitEvent(in_, begin_, 0));
    for (int i = 0; i < times * blocks_; ++i) {
      const std::size_t at = block_ * static_cast<std::size_t>(i % blocks_);
      const std::size_t other = at + block_ * static_cast<std::size_t>(blocks_);
      if (goes_out)
        CHECKED(cudaMemcpyAsync(host_ + at, device_ + at, block_, cudaMemcpyDeviceToHost, out_));
      if (comes_in)
        CHECKED(
            cudaMemcpyAsync(device_ + other, host_ + other, block_, cudaMemcpyHostToDevice, in_));
    }
    CHECKED(cudaEventRecord(out_end_, out_));
    CHECKED(cudaEventRecord(in_end_, in_));
    moved_ =
        static_cast<double>(block_) * blocks_ * times * ((goes_out ? 1 : 0) + (comes_in ? 1 : 0));
  }

  /// Bytes per second of what was started.
  double finish() {
    CHECKED(cudaEventSynchronize(out_end_));
    CHECKED(cudaEventSynchronize(in_end_));
    return moved_ / std::max(seconds_between(begin_, out_end_), seconds_between(begin_, in_end_));
  }

  double rate(bool goes_out, bool comes_in, int rounds) {
    std::vector<double> rates;
    for (int i = 0; i < rounds; ++i) {
      start(goes_out, comes_in, 1);
      rates.push_back(finish());
    }
    return median(std::move(rates));
  }

 private:
  const std::size_t block_;
  const int blocks_;
  double moved_ = 0.0;
  char* device_ = nullptr;  // The process's end gives all of it back.
  char* host_ = nullptr;
  cudaStream_t out_ = nullptr, in_ = nullptr;
  cudaEvent_t begin_ = nullptr, out_end_ = nullptr, in_end_ = nullptr;
};

/// Matrix products of one size, one behind the other.
class Products {
 public:
  Products(std::int64_t size, at::ScalarType type)
      : left_(torch::ones({size, size}, at::device(at::kCUDA).dtype(type))),
        right_(torch::ones({size, size}, at::device(at::kCUDA).dtype(type))),
        result_(torch::empty({size, size}, at::device(at::kCUDA).dtype(type))) {
    for (cudaEvent_t* event : {&begin_, &end_}) CHECKED(cudaEventCreate(event));
  }

  void start(int count) {
    CHECKED(cudaEventRecord(begin_, nullptr));
    for (int i = 0; i < count; ++i) at::mm_out(result_, left_, right_);
    CHECKED(cudaEventRecord(end_, nullptr));
  }

  double finish() {
    CHECKED(cudaEventSynchronize(end_));
    return seconds_between(begin_, end_);
  }

 private:
  at::Tensor left_, right_, result_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

void measure(char** words) {
  constexpr int kTimes = 4;
  const auto block = static_cast<std::size_t>(std::atoi(words[1])) << 20;
  const int rounds = std::atoi(words[3]);
  const bool is_half = std::string(words[5]) == "bfloat16";
  const at::NoGradGuard no_graph;
  Products products(std::atoi(words[4]), is_half ? at::kBFloat16 : at::kFloat);
  Link link(block, std::atoi(words[2]));
  link.rate(true, true, 1);
  products.start(2);  // Chooses algorithms.
  products.finish();
  products.start(2);
  const double one = products.finish() / 2;
  link.start(true, true, kTimes);
  const double both = link.finish();
  const double copying = kTimes * 2.0 * static_cast<double>(block) * std::atoi(words[2]) / both;
  const int shorter = std::clamp(static_cast<int>(copying / one / 2), 1, 1000);
  std::vector<double> alone, beside, rates;
  for (int i = 0; i < rounds; ++i) {
    products.start(shorter);
    alone.push_back(products.finish() / shorter);
    link.start(true, true, kTimes);
    products.start(shorter);
    beside.push_back(products.finish() / shorter);
    link.finish();
    // Products that outlast the copies.
    products.start(4 * shorter + 1);
    link.start(true, true, kTimes);
    rates.push_back(link.finish());
    products.finish();
  }
  std::printf("{\"block_bytes\": %zu, \"out\": %.6g, \"in\": %.6g, \"both\": %.6g, "
              "\"both_beside_products\": %.6g, \"product_seconds\": %.6g, "
              "\"product_seconds_beside_copies\": %.6g}\n",
              block, link.rate(true, false, rounds), link.rate(false, true, rounds),
              link.rate(true, true, rounds), median(std::move(rates)), median(std::move(alone)),
              median(std::move(beside)));
}

}  // namespace

int main(int count, char** words) {
  if (count != 6) {
    std::fputs("usage: BLOCK_MIB BLOCKS ROUNDS PRODUCT_SIZE bfloat16|float\n", stderr);
    return 2;
  }
  try {
    measure(words);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
