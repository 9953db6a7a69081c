#include "gpu_findings.h"

#include <gmock/gmock.h>

namespace spillway::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr device::DeviceId kFirst{device::DeviceKind::kCuda, 0};
constexpr device::DeviceId kSecond{device::DeviceKind::kCuda, 1};

device::CudaDeviceFacts good_gpu(device::DeviceId id) {
  device::CudaDeviceFacts gpu;
  gpu.id = id;
  gpu.name = "NVIDIA H100 80GB HBM3";
  gpu.compute_capability = "9.0";
  gpu.memory = 80_GiB;
  gpu.bus_address = "0000:17:00.0";
  gpu.numa_node = 1;
  gpu.capabilities = {.virtual_memory = true, .pinned_host_memory = true};
  return gpu;
}

device::CudaFacts facts_of(std::vector<device::CudaDeviceFacts> devices) {
  return {.reason = {}, .driver = "13.2", .runtime = "13.0", .devices = std::move(devices)};
}

Finding finding_of(const device::CudaDeviceFacts& gpu, const OpenedGpu& opened) {
  return check_cuda(facts_of({gpu}), {opened}, {})[1];
}

TEST(CheckCuda, TellsReleasesAndEachGpu) {
  const auto findings =
      check_cuda(facts_of({good_gpu(kFirst), good_gpu(kSecond)}), {{79_GiB, {}}, {8_GiB, {}}}, {});
  ASSERT_EQ(findings.size(), 5U);
  EXPECT_EQ(findings[0].subject, "CUDA");
  EXPECT_EQ(findings[0].value, "13.0; the driver serves up to 13.2");
  EXPECT_EQ(findings[1].subject, "cuda:0");
  EXPECT_EQ(findings[1].value,
            "NVIDIA H100 80GB HBM3 (9.0), 79.0 GiB of 80.0 GiB free, 0000:17:00.0, NUMA node 1, "
            "virtual memory");
  EXPECT_EQ(findings[2].subject, "cuda:1");
  EXPECT_EQ(findings[3].subject, "budget of cuda:0");
  EXPECT_EQ(findings[3].value, "78.0 GiB (auto: 79.0 GiB free of 80.0 GiB, less 1.00 GiB reserve)");
  EXPECT_EQ(findings[4].subject, "budget of cuda:1");
  EXPECT_EQ(worst(findings), Verdict::kOk);
}

TEST(CheckCuda, TellsOfBudgetsThatAGpuCannotHave) {
  runtime::Settings settings;
  runtime::assign_setting(settings, "budget", "cuda:0=20GiB", "test");
  const auto told = [&](Bytes free) {
    return check_cuda(facts_of({good_gpu(kFirst)}), {{free, {}}}, settings).back();
  };
  EXPECT_EQ(told(79_GiB).value, "20.0 GiB (given)");
  EXPECT_EQ(told(10_GiB).verdict, Verdict::kWarning);
  EXPECT_THAT(told(10_GiB).mend, HasSubstr("larger than what is free on cuda:0"));
  runtime::assign_setting(settings, "budget", "cuda:0=90GiB", "test");
  EXPECT_EQ(told(79_GiB).verdict, Verdict::kProblem);
  EXPECT_THAT(told(79_GiB).mend, HasSubstr("larger than the memory of cuda:0"));

  runtime::assign_setting(settings, "budget", "cuda:5=20GiB", "test");
  const auto findings = check_cuda(facts_of({good_gpu(kFirst)}), {{79_GiB, {}}}, settings);
  EXPECT_EQ(findings.front().verdict, Verdict::kProblem);
  EXPECT_THAT(findings.front().mend, HasSubstr("a budget for cuda:5, and the program sees 1 GPU"));
}

TEST(CheckCuda, TellsNoBudgetOfAGpuThatIsNotServed) {
  auto gpu = good_gpu(kFirst);
  gpu.capabilities.virtual_memory = false;
  EXPECT_EQ(check_cuda(facts_of({gpu}), {{79_GiB, {}}}, {}).size(), 2U);
}

TEST(CheckCudaPart, IsAProblemWhereACoreLacksIt) {
  const Installation here{.library_folder = "/a/lib",
                          .preload = {},
                          .served = {"2.11", "2.13"},
                          .served_on_gpus = {"2.11"}};
  EXPECT_TRUE(check_cuda_part("2.11.0", here).empty());
  EXPECT_TRUE(check_cuda_part("2.15.0", here).empty());
  const auto of_other = check_cuda_part("2.13.1", here);
  ASSERT_EQ(of_other.size(), 1U);
  EXPECT_EQ(of_other[0].verdict, Verdict::kProblem);
  EXPECT_THAT(of_other[0].mend, HasSubstr("served with LibTorch 2.11 alone, not with 2.13"));
  Installation without = here;
  without.served_on_gpus.clear();
  const auto missing = check_cuda_part("2.11.0", without);
  ASSERT_EQ(missing.size(), 1U);
  EXPECT_THAT(missing[0].mend, HasSubstr("cmake --build build/release --target spillway_cores"));
}

TEST(CheckCuda, GivesTheReasonWhereThereAreNone) {
  device::CudaFacts facts;
  facts.reason = "no driver of NVIDIA is loaded: install one";
  const auto findings = check_cuda(facts, {}, {});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].value, "no GPU can be used; trainers run on the CPU");
  EXPECT_EQ(findings[0].verdict, Verdict::kWarning);
  EXPECT_EQ(findings[0].mend, facts.reason);
}

TEST(CheckCuda, TellsHowGpusReachEachOther) {
  auto gpu = good_gpu(kFirst);
  gpu.capabilities.peer_copies = true;
  EXPECT_THAT(finding_of(gpu, {}).value, HasSubstr(", reaches other GPUs through the host"));
  gpu.direct_peers = {kSecond, {device::DeviceKind::kCuda, 2}};
  EXPECT_THAT(finding_of(gpu, {}).value, HasSubstr(", reaches cuda:1 cuda:2 directly"));
}

TEST(CheckCuda, TellsASliceOfAGpu) {
  auto gpu = good_gpu(kFirst);
  EXPECT_THAT(finding_of(gpu, {}).value, Not(HasSubstr("MIG")));
  gpu.is_mig_slice = true;
  EXPECT_THAT(finding_of(gpu, {}).value, HasSubstr(", a MIG slice"));
}

TEST(CheckCuda, SaysWhyAGpuCannotBeOpened) {
  const Finding finding = finding_of(good_gpu(kFirst), {{}, "cuda:0: out of memory"});
  EXPECT_EQ(finding.value, "NVIDIA H100 80GB HBM3 (9.0)");
  EXPECT_EQ(finding.verdict, Verdict::kWarning);
  EXPECT_THAT(finding.mend, HasSubstr("it cannot be opened: cuda:0: out of memory"));
}

TEST(CheckCuda, SaysWhatAGpuLacks) {
  auto gpu = good_gpu(kFirst);
  gpu.capabilities = {};
  const Finding finding = finding_of(gpu, {});
  EXPECT_THAT(finding.value, HasSubstr(", no virtual memory, no pinned host memory"));
  EXPECT_EQ(finding.verdict, Verdict::kWarning);
  EXPECT_THAT(finding.mend, HasSubstr("cuMemMap"));
  EXPECT_THAT(finding.mend, HasSubstr("; copies to and from it are slow"));
}

TEST(CheckNccl, TellsReleaseAndPlace) {
  const Finding finding = check_nccl({"/site/libnccl.so.2", "2.28.9", {}}, 2);
  EXPECT_EQ(finding.value, "2.28.9, /site/libnccl.so.2");
  EXPECT_EQ(finding.verdict, Verdict::kOk);
}

TEST(CheckNccl, WarnsOfItsLackWhereThereAreSeveralGpus) {
  EXPECT_EQ(check_nccl({{}, {}, "too old"}, 1).verdict, Verdict::kOk);
  const Finding finding = check_nccl({{}, {}, "too old"}, 2);
  EXPECT_EQ(finding.verdict, Verdict::kWarning);
  EXPECT_EQ(finding.mend, "too old");
}

}  // namespace
}  // namespace spillway::cli
