#include "gpu_findings.h"

#include <algorithm>

#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"
#include "spillway/preload/cuda_part.h"
#include "spillway/runtime/settings/device_budget.h"

namespace spillway::cli {
namespace {

std::string links_of(const device::CudaDeviceFacts& gpu) {
  if (!gpu.capabilities.peer_copies) return {};
  if (gpu.direct_peers.empty()) return ", reaches other GPUs through the host";
  std::string text;
  for (const device::DeviceId peer : gpu.direct_peers)
    text += (text.empty() ? ", reaches " : " ") + to_string(peer);
  return text + " directly";
}

Finding check_gpu(const device::CudaDeviceFacts& gpu, const OpenedGpu& opened) {
  Finding finding{to_string(gpu.id), gpu.name};
  std::string& value = finding.value;
  if (!gpu.compute_capability.empty()) value += message(" ({})", gpu.compute_capability);
  if (!opened.refusal.empty()) {
    finding.warn("it cannot be opened: {}", opened.refusal);
    return finding;
  }
  value += message(", {} of {} free", opened.free, gpu.memory);
  // https://github.com/NVIDIA/nccl/issues/1716
  if (gpu.is_mig_slice) value += ", a MIG slice (NCCL may refuse ranks on slices of one GPU)";
  if (!gpu.bus_address.empty()) value += message(", {}", gpu.bus_address);
  if (gpu.numa_node) value += message(", NUMA node {}", *gpu.numa_node);
  value += links_of(gpu);
  const auto warn = [&](const char* lack, const char* mend) {
    value += message(", no {}", lack);
    finding.warn(mend);
  };
  if (gpu.capabilities.virtual_memory)
    value += ", virtual memory";
  else
    warn("virtual memory",
         "moving tensors out of this GPU needs it (cuMemMap): a virtual GPU has it by a setting of "
         "its host");
  if (!gpu.capabilities.pinned_host_memory)
    warn("pinned host memory", "copies to and from it are slow: a newer kernel or driver may help");
  return finding;
}

/// Throws ConfigError where it cannot be kept.
runtime::ResolvedBudget budget_of(const device::CudaDeviceFacts& gpu, Bytes free,
                                  const runtime::Settings& settings) {
  return runtime::resolve_device_budget(
      settings, {gpu.id, gpu.name, {gpu.memory, free}, runtime::device_page_size(settings)});
}

Finding check_budget_of(const device::CudaDeviceFacts& gpu, Bytes free,
                        const runtime::Settings& settings) {
  Finding finding{message("budget of {}", gpu.id), "none"};
  try {
    const auto resolved = budget_of(gpu, free, settings);
    finding.value = message("{} ({})", resolved.budget, resolved.origin);
    if (resolved.warnings.empty()) return finding;
    finding.warn(resolved.warnings.front());
  } catch (const ConfigError& error) {
    finding.fail(error.what());
  }
  return finding;
}

}  // namespace

std::vector<Finding> check_cuda(const device::CudaFacts& facts,
                                const std::vector<OpenedGpu>& opened,
                                const runtime::Settings& settings) {
  SPILLWAY_ASSERT(facts.devices.size() == opened.size());
  if (!facts.reason.empty())
    return {
        {"CUDA", "no GPU can be used; trainers run on the CPU", Verdict::kWarning, facts.reason}};
  std::vector<Finding> findings{
      {"CUDA", message("{}; the driver serves up to {}", facts.runtime, facts.driver)}};
  try {
    runtime::check_named_gpus(settings, facts.devices.size());
  } catch (const ConfigError& error) {
    findings.front().fail(error.what());
  }
  for (std::size_t i = 0; i < opened.size(); ++i)
    findings.push_back(check_gpu(facts.devices[i], opened[i]));
  for (std::size_t i = 0; i < opened.size(); ++i)
    if (opened[i].refusal.empty() && facts.devices[i].capabilities.virtual_memory)
      findings.push_back(check_budget_of(facts.devices[i], opened[i].free, settings));
  return findings;
}

std::string wish_for_gpus(const runtime::Settings& settings,
                          const std::vector<std::string>& arguments) {
  const std::string_view gpus = device::name_of(device::DeviceKind::kCuda);
  for (const runtime::DeviceBudget& each : settings.device_budgets)
    if (each.device.starts_with(gpus)) return message("there is a budget for {}", each.device);
  for (const std::string& argument : arguments) {
    const std::string value = argument.substr(argument.rfind('=') + 1);
    if (value == gpus || value.starts_with(message("{}:", gpus)))
      return message("the program is given {}", shown_text(argument));
  }
  return {};
}

void expect_gpus(Finding& none, const std::string& wish) {
  if (wish.empty()) return;
  none.value += message(", although {}", wish);
  none.verdict = Verdict::kProblem;
}

std::string objection_to_budgets(const device::CudaFacts& facts,
                                 const runtime::Settings& settings) {
  if (facts.devices.empty()) return {};
  try {
    runtime::check_named_gpus(settings, facts.devices.size());
    for (const device::CudaDeviceFacts& gpu : facts.devices)
      if (gpu.capabilities.virtual_memory) budget_of(gpu, gpu.memory, settings);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

std::vector<Finding> check_cuda_part(const std::string& torch_version, const Installation& here) {
  if (here.core_for(torch_version).empty()) return {};
  const std::string minor = minor_of(torch_version);
  const auto& on_gpus = here.served_on_gpus;
  if (std::find(on_gpus.begin(), on_gpus.end(), minor) != on_gpus.end()) return {};
  return {{"CUDA tensors", "no budget would limit them: the core has no part for CUDA",
           Verdict::kProblem, preload::cure_without_cuda_part(minor)}};
}

Finding check_direct_files(const std::string& reason) {
  const std::string value =
      reason.empty() ? std::string("cuFile moves pages between GPUs and disks that it serves")
                     : message("off, pages go through host memory: {}", reason);
  return {"GPUDirect", value};
}

Finding check_nccl(const transport::NcclFacts& facts, std::size_t gpus) {
  if (facts.reason.empty()) return {"NCCL", message("{}, {}", facts.version, facts.library)};
  if (gpus < 2) return {"NCCL", "none, which one GPU does without"};
  return {"NCCL", "none; ranks on GPUs cannot send one another what lies on these",
          Verdict::kWarning, facts.reason};
}

}  // namespace spillway::cli
