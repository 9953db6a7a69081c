// The rules of streams, events and memory, each kept and each broken once, with LibTorch's CUDA
// part on top. What keeps them has the right bits; what breaks them ends with both parties named,
// whatever the timing.
#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>

#include "chunked_range.h"
#include "increment_kernel.h"
#include "streams_and_memory.h"

namespace spillway::emulated {
namespace {

using c10::cuda::CUDAStream;
using c10::cuda::CUDAStreamGuard;

constexpr std::int64_t kCount = 1 << 16;

enum class Rule : bool { kBroken, kKept };

CUDAStream compute() { return c10::cuda::getDefaultCUDAStream(); }
CUDAStream copies() {
  static const CUDAStream stream = c10::cuda::getStreamFromPool();
  return stream;
}

at::Tensor pinned(float value) {
  return at::empty({kCount}, at::TensorOptions(at::kCPU).dtype(at::kFloat).pinned_memory(true))
      .fill_(value);
}

void copy_on(CUDAStream stream, const at::Tensor& to, const at::Tensor& from) {
  const CUDAStreamGuard guard(stream);
  to.copy_(from, /*non_blocking=*/true);
}

void increment(const at::Tensor& tensor) {
  launch_increment(tensor.data_ptr<float>(), tensor.numel(), compute().stream());
}

// `later` waits for all that is in `earlier`, or for nothing.
void order(CUDAStream earlier, CUDAStream later, Rule rule) {
  ScopedEvent event;
  event.record(earlier);
  if (rule == Rule::kKept) event.block(later);
}

// Memory belongs to the stream that it was allocated for; the copies may follow.
at::Tensor on_device() {
  at::Tensor tensor = at::empty({kCount}, at::TensorOptions(at::kCUDA).dtype(at::kFloat));
  order(compute(), copies(), Rule::kKept);
  return tensor;
}

// A device tensor that the compute stream has written.
at::Tensor incremented_ones() {
  at::Tensor tensor = on_device();
  tensor.copy_(at::ones({kCount}));
  increment(tensor);
  return tensor;
}

bool all_are(const at::Tensor& tensor, float value) {
  return tensor.cpu().eq(value).all().item<bool>();
}

void operator_waits_for_its_copy_in(Rule rule) {
  const at::Tensor host = pinned(1);
  const at::Tensor device = on_device();
  copy_on(copies(), device, host);
  order(copies(), compute(), rule);
  increment(device);
  EXPECT_TRUE(all_are(device, 2));
  copies().synchronize();
}

void copy_out_waits_for_its_operator(Rule rule) {
  const at::Tensor host = pinned(0);
  const at::Tensor device = incremented_ones();
  order(compute(), copies(), rule);
  copy_on(copies(), host, device);
  copies().synchronize();
  EXPECT_TRUE(all_are(host, 2));
}

void block_is_not_reused_while_its_copy_out_runs(Rule rule) {
  const at::Tensor host = pinned(0);
  {
    const at::Tensor device = incremented_ones();
    order(compute(), copies(), Rule::kKept);
    copy_on(copies(), host, device);
    if (rule == Rule::kKept) device.record_stream(copies().unwrap());
  }
  const at::Tensor next = on_device();
  increment(next);
  copies().synchronize();
  EXPECT_TRUE(all_are(host, 2));
}

void operator_waits_for_the_copy_out_of_what_it_overwrites(Rule rule) {
  const at::Tensor host = pinned(0);
  const at::Tensor device = incremented_ones();
  order(compute(), copies(), Rule::kKept);
  copy_on(copies(), host, device);
  order(copies(), compute(), rule);
  increment(device);
  copies().synchronize();
  EXPECT_TRUE(all_are(host, 2));
}

void pinned_buffer_is_not_refilled_while_a_copy_reads_it(Rule rule) {
  const at::Tensor host = pinned(1);
  const at::Tensor device = on_device();
  copy_on(copies(), device, host);
  if (rule == Rule::kKept) copies().synchronize();
  host.fill_(-7);
  copies().synchronize();
  order(copies(), compute(), Rule::kKept);
  EXPECT_TRUE(all_are(device, 1));
}

void pinned_buffer_is_not_read_before_its_copy_has_ended(Rule rule) {
  const at::Tensor host = pinned(0);
  const at::Tensor device = incremented_ones();
  order(compute(), copies(), Rule::kKept);
  copy_on(copies(), host, device);
  if (rule == Rule::kKept) copies().synchronize();
  EXPECT_EQ(host.data_ptr<float>()[kCount / 2], 2);
}

// A stream that has waited for another one, which the host then waits for: the knowledge is handed
// on.
void knowledge_is_handed_on(Rule rule) {
  const at::Tensor host = pinned(1);
  const at::Tensor device = on_device();
  copy_on(copies(), device, host);
  order(copies(), compute(), rule);
  compute().synchronize();
  host.fill_(-7);
  EXPECT_TRUE(all_are(device, 1));
  copies().synchronize();
}

void unmapping_waits_for_the_operator(Rule rule) {
  ChunkedRange range;
  range.map();
  range.give_access();
  launch_increment(range.data(), range.count(), compute().stream());
  ScopedEvent used;
  used.record(compute());
  if (rule == Rule::kKept) used.wait();
  range.unmap();
}

void unmapping_waits_for_the_copy_out(Rule rule) {
  const at::Tensor host = pinned(0);
  ChunkedRange range;
  range.map();
  range.give_access();
  const std::size_t bytes = std::min(range.bytes(), kCount * sizeof(float));
  EXPECT_EQ(cudaMemsetAsync(range.data(), 0, bytes, copies().stream()), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(host.data_ptr(), range.data(), bytes, cudaMemcpyDeviceToHost,
                            copies().stream()),
            cudaSuccess);
  ScopedEvent copied;
  if (rule == Rule::kKept)
    copied.record(copies());  // Else it is recorded nowhere, so that nothing is waited for.
  copied.wait();
  range.unmap();
}

void what_is_out_is_not_used(Rule rule) {
  ChunkedRange range;
  if (rule == Rule::kKept) {
    range.map();
    range.give_access();
  }
  launch_increment(range.data(), range.count(), compute().stream());
  compute().synchronize();
  range.unmap();
}

void mapped_chunks_get_access(Rule rule) {
  ChunkedRange range;
  range.map();
  if (rule == Rule::kKept) range.give_access();
  launch_increment(range.data(), range.count(), compute().stream());
  compute().synchronize();
  range.unmap();
}

void memory_freed_in_a_stream_is_not_used_in_another(Rule rule) {
  void* memory = nullptr;
  EXPECT_EQ(cudaMallocAsync(&memory, kCount * sizeof(float), compute().stream()), cudaSuccess);
  order(compute(), copies(), Rule::kKept);
  EXPECT_EQ(cudaMemsetAsync(memory, 0, kCount * sizeof(float), copies().stream()), cudaSuccess);
  order(copies(), compute(), rule);
  EXPECT_EQ(cudaFreeAsync(memory, compute().stream()), cudaSuccess);
  compute().synchronize();
  copies().synchronize();
}

struct Case {
  const char* name;
  void (*program)(Rule rule);
  const char* message;  // Of the broken one; a regular expression.
};

void PrintTo(const Case& rule, std::ostream* out) { *out << rule.name; }

class Rules : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_P(Rules, Kept) {
  for (int round = 0; round < 3; ++round) GetParam().program(Rule::kKept);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_P(Rules, Broken) { EXPECT_DEATH(GetParam().program(Rule::kBroken), GetParam().message); }

constexpr Case kCases[] = {
    {"OperatorWaitsForItsCopyIn", operator_waits_for_its_copy_in,
     "not ordered: 'increment' on the default stream of device 0 writes memory at 0x[0-9a-f]+ that "
     "'copy, "
     "host to device' on "
     "stream [0-9]+ of device 0 wrote"},
    {"CopyOutWaitsForItsOperator", copy_out_waits_for_its_operator,
     "not ordered: 'copy, device to host' on stream [0-9]+ of device 0 reads memory at 0x[0-9a-f]+ "
     "that 'increment'"},
    {"BlockIsNotReusedWhileItsCopyOutRuns", block_is_not_reused_while_its_copy_out_runs,
     "not ordered: '(increment|cudaFreeAsync)' on the default stream of device 0 writes memory .* "
     "that 'copy, "
     "device to "
     "host' on stream [0-9]+ "
     "of device 0 read"},
    {"OperatorWaitsForTheCopyOutOfWhatItOverwrites",
     operator_waits_for_the_copy_out_of_what_it_overwrites,
     "not ordered: 'increment' .* that 'copy, device to host' .* read"},
    {"PinnedBufferIsNotRefilledWhileACopyReadsIt",
     pinned_buffer_is_not_refilled_while_a_copy_reads_it,
     "the host touches pinned memory at 0x[0-9a-f]+ that 'copy, host to device' reads and that the "
     "host has not yet "
     "waited for; write it after cudaEventSynchronize"},
    {"PinnedBufferIsNotReadBeforeItsCopyHasEnded",
     pinned_buffer_is_not_read_before_its_copy_has_ended,
     "the host touches pinned memory at 0x[0-9a-f]+ that 'copy, device to host' writes .*; use it "
     "after"},
    {"KnowledgeIsHandedOn", knowledge_is_handed_on,
     "the host touches pinned memory .* 'copy, host to device' reads"},
    {"UnmappingWaitsForTheOperator", unmapping_waits_for_the_operator,
     "not ordered: 'cuMemUnmap' on the host takes away memory at 0x[0-9a-f]+ that 'increment' on "
     "the default stream"},
    {"UnmappingWaitsForTheCopyOut", unmapping_waits_for_the_copy_out,
     "not ordered: 'cuMemUnmap' on the host takes away memory at 0x[0-9a-f]+ that 'fill' on "
     "stream"},
    {"WhatIsOutIsNotUsed", what_is_out_is_not_used,
     "'increment' uses device memory at 0x[0-9a-f]+, where nothing is mapped"},
    {"MappedChunksGetAccess", mapped_chunks_get_access,
     "'increment' uses device memory at 0x[0-9a-f]+, where a chunk is mapped that cuMemSetAccess "
     "was not called for"},
    {"MemoryFreedInAStreamIsNotUsedInAnother", memory_freed_in_a_stream_is_not_used_in_another,
     "not ordered: 'cudaFreeAsync' on the default stream of device 0 writes memory .* that 'fill' "
     "on stream"},
};

INSTANTIATE_TEST_SUITE_P(EmulatedCuda, Rules, testing::ValuesIn(kCases),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace spillway::emulated
