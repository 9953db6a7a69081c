#include "gpu_findings.h"

#include "finding_rows.h"
#include "support/golden_folder.h"
#include "support/golden_part.h"
#include "support/golden_text.h"

namespace spillway::cli {
namespace {

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

std::string shown(const device::CudaDeviceFacts& gpu, const OpenedGpu& opened) {
  return rows_of({check_cuda(facts_of({gpu}), {opened}, {})[1]});
}

TEST(CheckCuda, IsWhatItsFileShows) {
  GoldenText golden(golden_file("gpu_findings.txt"));
  golden.add("two good ones",
             report_text(check_cuda(facts_of({good_gpu(kFirst), good_gpu(kSecond)}),
                                    {{79_GiB, {}}, {8_GiB, {}}}, {})));
  device::CudaFacts none;
  none.reason = "no driver of NVIDIA is loaded: install one";
  golden.add("none", rows_of(check_cuda(none, {}, {})));
  auto gpu = good_gpu(kFirst);
  golden.add("cannot be opened", shown(gpu, {{}, "cuda:0: out of memory"}));
  gpu.capabilities.peer_copies = true;
  golden.add("reaches none directly", shown(gpu, {}));
  gpu.direct_peers = {kSecond, {device::DeviceKind::kCuda, 2}};
  golden.add("reaches two directly", shown(gpu, {}));
  gpu = good_gpu(kFirst);
  gpu.is_mig_slice = true;
  golden.add("a slice", shown(gpu, {}));
  gpu.capabilities = {};
  golden.add("lacks much", shown(gpu, {}));
  golden.add("NCCL", rows_of({check_nccl({"/site/libnccl.so.2", "2.28.9", {}}, 2)}));
  golden.add("no NCCL for one", rows_of({check_nccl({{}, {}, "too old"}, 1)}));
  golden.add("no NCCL for two", rows_of({check_nccl({{}, {}, "too old"}, 2)}));
  const Installation here{.library_folder = "/a/lib",
                          .preload = {},
                          .served = {"2.11", "2.13"},
                          .served_on_gpus = {"2.11"}};
  golden.add("a core with its part", rows_of(check_cuda_part("2.11.0", here)));
  golden.add("a core that is missing", rows_of(check_cuda_part("2.15.0", here)));
  golden.add("a core without its part", rows_of(check_cuda_part("2.13.1", here)));
  Installation without = here;
  without.served_on_gpus.clear();
  golden.add("no core has its part", rows_of(check_cuda_part("2.11.0", without)));
}

TEST(CheckCuda, TellsOfBudgetsThatAGpuCannotHave) {
  runtime::Settings settings;
  runtime::assign_setting(settings, "budget", "cuda:0=20GiB", "test");
  const auto told = [&](Bytes free) {
    return check_cuda(facts_of({good_gpu(kFirst)}), {{free, {}}}, settings).back();
  };
  GoldenPart golden;
  golden.add(rows_of({told(79_GiB)}));
  golden.add(rows_of({told(10_GiB)}));
  runtime::assign_setting(settings, "budget", "cuda:0=90GiB", "test");
  golden.add(rows_of({told(79_GiB)}));
  runtime::assign_setting(settings, "budget", "cuda:5=20GiB", "test");
  golden.add(rows_of(check_cuda(facts_of({good_gpu(kFirst)}), {{79_GiB, {}}}, settings)));
}

TEST(ObjectionToBudgets, IsWhatNoGpuThatIsThereCanHave) {
  const auto objection = [](const std::string& budget, device::CudaFacts facts) {
    runtime::Settings settings;
    runtime::assign_setting(settings, "budget", budget, "test");
    return objection_to_budgets(facts, settings);
  };
  const auto one = facts_of({good_gpu(kFirst)});
  EXPECT_EQ(objection("cuda=80GiB", one), "");
  EXPECT_EQ(objection("90GiB", one), "");  // Of all devices: it is lowered there.
  GoldenPart golden;
  golden.add(objection("cuda=90GiB", one));
  golden.add(objection("cuda:5=20GiB", one));
  EXPECT_EQ(objection("cuda=90GiB", {}), "");  // The program may do without.
}

TEST(WishForGpus, IsABudgetOrAnArgumentOfTheProgram) {
  const auto wish = [](const std::string& budget, const std::vector<std::string>& arguments) {
    runtime::Settings settings;
    runtime::assign_setting(settings, "budget", budget, "test");
    return wish_for_gpus(settings, arguments);
  };
  EXPECT_EQ(wish("cpu=4GiB,cuda:1=4GiB", {}), "there is a budget for cuda:1");
  EXPECT_EQ(wish("4GiB", {"--device", "cuda"}), "the program is given cuda");
  EXPECT_EQ(wish("auto", {"--device=cuda:1"}), "the program is given --device=cuda:1");
  EXPECT_EQ(wish("cpu=4GiB", {"--device", "cpu", "cudas.txt", "--cuda=off"}), "");
}

TEST(ExpectGpus, MakesAProblemOfTheirLackWhereTheyAreWished) {
  device::CudaFacts facts;
  facts.reason = "the driver of NVIDIA sees no GPU";
  Finding none = check_cuda(facts, {}, {}).front();
  expect_gpus(none, {});
  EXPECT_EQ(none.verdict, Verdict::kWarning);
  expect_gpus(none, "there is a budget for cuda");
  EXPECT_EQ(none.verdict, Verdict::kProblem);
  EXPECT_EQ(none.value,
            "no GPU can be used; trainers run on the CPU, although there is a budget for cuda");
  EXPECT_EQ(none.mend, "the driver of NVIDIA sees no GPU");
}

TEST(CheckCuda, TellsNoBudgetOfAGpuThatIsNotServed) {
  auto gpu = good_gpu(kFirst);
  gpu.capabilities.virtual_memory = false;
  EXPECT_EQ(check_cuda(facts_of({gpu}), {{79_GiB, {}}}, {}).size(), 2U);
}

}  // namespace
}  // namespace spillway::cli
