// What NCCL tells of itself, how communicators begin, and its memory.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "group.h"

using namespace spillway::emulated;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = kNcclVersion;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<long> serial{0};
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "/emulated_nccl_%d_%ld", getpid(),
                serial.fetch_add(1));
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t error) {
  switch (error) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
  }
  return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t) { return last_nccl_text().c_str(); }

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return join(comm, id.internal, ranks, rank);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    void* configuration) {
  const auto* const config = static_cast<const EmulatedNcclConfig*>(configuration);
  if (config == nullptr) return join(comm, id.internal, ranks, rank);
  if (config->magic != kNcclConfigMagic)
    return refuse(ncclInvalidArgument, "the configuration was not initialized");
  return join(comm, id.internal, ranks, rank, config->blocking != 0);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int, ncclUniqueId* ids,
                                      void*) {
  return join(comm, ids->internal, ranks, rank);
}

ncclResult_t ncclMemAlloc(void** address, size_t bytes) {
  return cudaMalloc(address, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* address) {
  return cudaFree(address) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(ncclComm_t, void*, size_t, void** handle) {
  *handle = nullptr;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(ncclComm_t, void*) { return ncclSuccess; }
}
