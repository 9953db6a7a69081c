#pragma once

#include <cstddef>

/// What of NCCL is called, as its binary interface has it since release 2.14 (ncclCommSplit: since
/// 2.18), and as no release has changed it. The package with its header has 196 MB, and nothing
/// else of it is needed. A function that would register memory is not among them, on purpose: pages
/// below our addresses move.
namespace spillway::transport::nccl {

/// ncclResult_t
enum class Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

/// ncclDataType_t
enum class DataType : int {
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};

/// ncclRedOp_t
enum class Reduction : int { kSum = 0 };

using Comm = struct OpaqueComm*;  ///< ncclComm_t
using CudaStream = void*;         ///< cudaStream_t

/// ncclUniqueId
struct UniqueId {
  char bytes[128];
};

/// ncclConfig_t as release 2.14 has it. Later ones know its size and version, and add their own
/// defaults.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};

constexpr int kNoColor = -1;           ///< NCCL_SPLIT_NOCOLOR
constexpr int kOldestVersion = 21400;  ///< The first one whose calls need not wait for others.
constexpr int kOldestVersionThatSplits = 21800;

// F(result, name, parameters)
#define SPILLWAY_NCCL(F)                                                                          \
  F(Result, ncclGetVersion, (int* version))                                                       \
  F(Result, ncclGetUniqueId, (UniqueId * id))                                                     \
  F(Result, ncclCommInitRankConfig, (Comm * comm, int ranks, UniqueId id, int rank, Config* how)) \
  F(Result, ncclCommFinalize, (Comm comm))                                                        \
  F(Result, ncclCommDestroy, (Comm comm))                                                         \
  F(Result, ncclCommAbort, (Comm comm))                                                           \
  F(Result, ncclCommGetAsyncError, (Comm comm, Result * error))                                   \
  F(const char*, ncclGetErrorString, (Result error))                                              \
  F(const char*, ncclGetLastError, (Comm comm))                                                   \
  F(Result, ncclGroupStart, ())                                                                   \
  F(Result, ncclGroupEnd, ())                                                                     \
  F(Result, ncclSend,                                                                             \
    (const void* from, std::size_t count, DataType type, int peer, Comm comm, CudaStream stream)) \
  F(Result, ncclRecv,                                                                             \
    (void* to, std::size_t count, DataType type, int peer, Comm comm, CudaStream stream))         \
  F(Result, ncclAllReduce,                                                                        \
    (const void* from, void* to, std::size_t count, DataType type, Reduction how, Comm comm,      \
     CudaStream stream))                                                                          \
  F(Result, ncclReduceScatter,                                                                    \
    (const void* from, void* to, std::size_t count, DataType type, Reduction how, Comm comm,      \
     CudaStream stream))                                                                          \
  F(Result, ncclAllGather,                                                                        \
    (const void* from, void* to, std::size_t count, DataType type, Comm comm, CudaStream stream)) \
  F(Result, ncclBroadcast,                                                                        \
    (const void* from, void* to, std::size_t count, DataType type, int root, Comm comm,           \
     CudaStream stream))

/// The functions, found at run time.
struct Functions {
#define SPILLWAY_DECLARE(result, name, parameters) result(*name) parameters = nullptr;
  SPILLWAY_NCCL(SPILLWAY_DECLARE)
#undef SPILLWAY_DECLARE
  /// Null before release 2.18.
  Result (*ncclCommSplit)(Comm comm, int color, int key, Comm* part, Config* how) = nullptr;
};

}  // namespace spillway::transport::nccl
