// What NVTX opens in place of a profiler (NVTX_INJECTION64_PATH): keeps the ranges that a program
// pushes, for the program to look at.
#include <nvtx3/nvToolsExt.h>

#include <mutex>
#include <string>
#include <vector>

#include "nvtx_ranges.h"

namespace {

struct Kept {
  std::mutex mutex;
  std::vector<SpillwayNvtxRange> ranges;
  std::string domain;
  int open = 0;
};

Kept& kept() {
  static Kept all;
  return all;
}

nvtxDomainHandle_t create(const char* name) {
  const std::lock_guard lock(kept().mutex);
  kept().domain = name;
  return reinterpret_cast<nvtxDomainHandle_t>(&kept());
}

int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range) {
  if (domain != reinterpret_cast<nvtxDomainHandle_t>(&kept())) return -1;
  const std::lock_guard lock(kept().mutex);
  kept().ranges.push_back({range->message.ascii, range->payload.ullValue});
  return kept().open++;
}

int pop(nvtxDomainHandle_t /*domain*/) {
  const std::lock_guard lock(kept().mutex);
  return --kept().open;
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t export_table) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0)
    return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(&create);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(&push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(&pop);
  return 1;
}

void spillway_take_nvtx_ranges(std::vector<SpillwayNvtxRange>& ranges, std::string& domain,
                               int& open) {
  const std::lock_guard lock(kept().mutex);
  ranges = std::move(kept().ranges);
  kept().ranges.clear();
  domain = kept().domain;
  open = kept().open;
}
