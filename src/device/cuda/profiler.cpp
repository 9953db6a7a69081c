#include "profiler.h"

#if __has_include(<nvtx3/nvToolsExtCudaRt.h>)
#include <nvtx3/nvToolsExtCudaRt.h>

namespace spillway::device {
namespace {

nvtxDomainHandle_t domain() {
  static nvtxDomainHandle_t const made = nvtxDomainCreateA("Spillway");
  return made;
}

}  // namespace

ProfilerRange::ProfilerRange(const char* name, Bytes size) {
  nvtxEventAttributes_t range{};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = name;
  range.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  range.payload.ullValue = size.count();
  nvtxDomainRangePushEx(domain(), &range);
}

ProfilerRange::~ProfilerRange() { nvtxDomainRangePop(domain()); }

void name_for_profilers(cudaStream_t stream, const std::string& name) {
  nvtxNameCudaStreamA(stream, name.c_str());
}

}  // namespace spillway::device

#else

namespace spillway::device {

ProfilerRange::ProfilerRange(const char* /*name*/, Bytes /*size*/) {}
ProfilerRange::~ProfilerRange() = default;

void name_for_profilers(cudaStream_t /*stream*/, const std::string& /*name*/) {}

}  // namespace spillway::device

#endif
