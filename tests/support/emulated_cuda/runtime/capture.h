#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ordering.h"
#include "stream.h"

namespace spillway::emulated {

/// A piece of work of a graph: runs at each launch, behind what was captured before it.
struct GraphNode {
  const char* what;
  CUstream_st::Delay delay;
  std::vector<ordering::Access> accesses;
  std::function<void()> run;
};
using GraphNodes = std::vector<GraphNode>;

/// What some streams are given from the begin of a capture to its end. It does not run then.
/// Thread-safe.
class Capture {
 public:
  Capture(unsigned long long id, cudaStreamCaptureMode mode, CUstream_st& origin)
      : id_(id), mode_(mode), origin_(origin), thread_(std::this_thread::get_id()) {}

  void add(GraphNode node);
  /// What the stream is given from now on goes here.
  static void join(const std::shared_ptr<Capture>& capture, CUstream_st& stream);
  /// Takes its streams back. Null where something has broken it.
  std::shared_ptr<const GraphNodes> end();

  /// Something that no graph can have: its end says so.
  void invalidate();
  bool is_valid() const;
  bool is_under_way() const;

  unsigned long long id() const { return id_; }
  const CUstream_st& origin() const { return origin_; }
  /// Whether an unsafe call of the calling thread, with that mode, is one that the capture forbids.
  bool forbids(cudaStreamCaptureMode of_thread) const;
  bool is_of_this_thread() const { return thread_ == std::this_thread::get_id(); }
  cudaStreamCaptureMode mode() const { return mode_; }

 private:
  const unsigned long long id_;
  const cudaStreamCaptureMode mode_;
  const CUstream_st& origin_;
  const std::thread::id thread_;
  mutable std::mutex mutex_;
  bool is_valid_ = true;
  std::vector<std::shared_ptr<CUstream_st>> streams_;
  GraphNodes nodes_;
};

/// For calls that do not become part of a graph and would be missing at its launch: allocations,
/// and what the host asks or waits for. cudaSuccess where no capture minds, as this thread's
/// cudaThreadExchangeStreamCaptureMode and the mode of the capture say; else the capture is broken.
cudaError_t may_be_unsafe(const char* call);

/// The same for what necessarily disturbs a capture of that stream.
cudaError_t may_not_capture(CUstream_st& stream, const char* call);

}  // namespace spillway::emulated
