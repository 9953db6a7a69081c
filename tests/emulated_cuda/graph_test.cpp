// Graphs of the emulated CUDA, without LibTorch.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "streams_and_memory.h"
#include "support/emulated_cuda/runtime/emulation.h"
#include "support/golden_part.h"

namespace spillway::emulated {
namespace {

constexpr std::size_t kBytes = 4096;

/// A graph of what `body` gives the stream.
class Graph {
 public:
  template <class Body>
  Graph(cudaStream_t stream, const Body& body,
        cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    EXPECT_EQ(cudaStreamBeginCapture(stream, mode), cudaSuccess);
    body();
    cudaGraph_t graph = nullptr;
    error_ = cudaStreamEndCapture(stream, &graph);
    if (error_ != cudaSuccess) return;
    EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes_), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiateWithFlags(&executable_, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
  ~Graph() {
    if (executable_ != nullptr) {
      EXPECT_EQ(cudaGraphExecDestroy(executable_), cudaSuccess);
    }
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  cudaError_t error() const { return error_; }
  std::size_t nodes() const { return nodes_; }
  void launch(cudaStream_t stream) const {
    EXPECT_EQ(cudaGraphLaunch(executable_, stream), cudaSuccess);
  }

 private:
  cudaGraphExec_t executable_ = nullptr;
  cudaError_t error_ = cudaSuccess;
  std::size_t nodes_ = 0;
};

class EmulatedGraphs : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void TearDown() override {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    cudaGetLastError();
  }

  void fill(const DeviceBytes& bytes, char value, cudaStream_t stream) const {
    EXPECT_EQ(cudaMemsetAsync(bytes.data(), value, kBytes, stream), cudaSuccess);
  }
  void copy(const DeviceBytes& to, const DeviceBytes& from, cudaStream_t stream) const {
    EXPECT_EQ(cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDefault, stream),
              cudaSuccess);
  }
  std::vector<char> values(const DeviceBytes& bytes) const {
    std::vector<char> host(kBytes);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(host.data(), bytes.data(), kBytes, cudaMemcpyDefault), cudaSuccess);
    return host;
  }
  std::vector<char> all(char value) const { return std::vector<char>(kBytes, value); }

  const FreeStream stream_;
  const FreeStream other_;
  const DeviceBytes first_{kBytes};
  const DeviceBytes second_{kBytes};
};
using EmulatedGraphsDeathTest = EmulatedGraphs;

TEST_F(EmulatedGraphs, RunAtEachLaunchAndNotWhileTheyAreCaptured) {
  fill(first_, 1, stream_);
  fill(second_, 2, stream_);
  const Graph graph(stream_, [this] { copy(second_, first_, stream_); });
  EXPECT_EQ(graph.nodes(), 1U);
  EXPECT_EQ(values(second_), all(2));
  graph.launch(stream_);
  EXPECT_EQ(values(second_), all(1));
  fill(first_, 3, stream_);
  graph.launch(stream_);
  EXPECT_EQ(values(second_), all(3));
}

TEST_F(EmulatedGraphs, TakeInAStreamThatWaitsForOneOfTheirs) {
  const ScopedEvent forked;
  const ScopedEvent joined;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const Graph graph(stream_, [&] {
    fill(first_, 5, stream_);
    EXPECT_EQ(cudaEventRecord(forked, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(other_, forked, 0), cudaSuccess);
    EXPECT_EQ(cudaStreamIsCapturing(other_, &status), cudaSuccess);
    copy(second_, first_, other_);
    EXPECT_EQ(cudaEventRecord(joined, other_), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(stream_, joined, 0), cudaSuccess);
    EXPECT_EQ(cudaEventQuery(joined), cudaErrorStreamCaptureUnsupported);
  });
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  EXPECT_EQ(graph.error(), cudaErrorStreamCaptureInvalidated);  // By the question.
  EXPECT_EQ(cudaStreamIsCapturing(other_, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  EXPECT_EQ(cudaEventQuery(joined), cudaErrorCapturedEvent);
}

TEST_F(EmulatedGraphs, AreBrokenByWhatTheyCannotHave) {
  GoldenPart golden;
  const PinnedBytes pinned(kBytes);
  std::vector<char> pageable(kBytes);
  const ScopedEvent before;
  EXPECT_EQ(cudaEventRecord(before, other_), cudaSuccess);
  void* memory = nullptr;
  const std::vector<std::pair<const char*, std::function<cudaError_t()>>> calls = {
      {"cudaMalloc", [&] { return cudaMalloc(&memory, kBytes); }},
      {"cudaHostAlloc", [&] { return cudaHostAlloc(&memory, kBytes, 0); }},
      {"cudaEventQuery", [&] { return cudaEventQuery(before); }},
      {"cudaEventSynchronize", [&] { return cudaEventSynchronize(before); }},
      {"cudaStreamSynchronize", [&] { return cudaStreamSynchronize(other_); }},
      {"cudaDeviceSynchronize", [&] { return cudaDeviceSynchronize(); }},
      {"cudaStreamQuery", [&] { return cudaStreamQuery(stream_); }},
      {"copy, host to device", [&] {
         return cudaMemcpyAsync(first_.data(), pageable.data(), kBytes, cudaMemcpyDefault, stream_);
       }}};
  for (const auto& [name, call] : calls) {
    std::string text;
    const Graph graph(stream_, [&, &call = call] {
      EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported) << name;
      text = cudaGetErrorString(cudaGetLastError());
    });
    golden.add(name, text);
    EXPECT_EQ(graph.error(), cudaErrorStreamCaptureInvalidated) << name;
  }
}

TEST_F(EmulatedGraphs, DoNotWaitForWhatIsNoPartOfThem) {
  const ScopedEvent outside;
  EXPECT_EQ(cudaEventRecord(outside, other_), cudaSuccess);
  const Graph graph(stream_, [&] {
    EXPECT_EQ(cudaStreamWaitEvent(stream_, outside, 0), cudaErrorStreamCaptureIsolation);
  });
  EXPECT_EQ(graph.error(), cudaErrorStreamCaptureInvalidated);
}

TEST_F(EmulatedGraphs, AreBrokenByOtherThreadsAsTheirModesSay) {
  using Mode = cudaStreamCaptureMode;
  const ScopedEvent before;
  EXPECT_EQ(cudaEventRecord(before, other_), cudaSuccess);
  const auto error_of = [&](Mode of_graph, Mode of_thread) {
    const Graph graph(
        stream_,
        [&] {
          std::thread([&] {
            Mode mode = of_thread;
            cudaThreadExchangeStreamCaptureMode(&mode);
            cudaEventQuery(before);
          }).join();
        },
        of_graph);
    return graph.error();
  };
  constexpr Mode kGlobal = cudaStreamCaptureModeGlobal;
  constexpr Mode kLocal = cudaStreamCaptureModeThreadLocal;
  constexpr Mode kRelaxed = cudaStreamCaptureModeRelaxed;
  EXPECT_EQ(error_of(kGlobal, kGlobal), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(error_of(kGlobal, kLocal), cudaSuccess);
  EXPECT_EQ(error_of(kGlobal, kRelaxed), cudaSuccess);
  EXPECT_EQ(error_of(kLocal, kGlobal), cudaSuccess);
  EXPECT_EQ(error_of(kRelaxed, kGlobal), cudaSuccess);
}

TEST_F(EmulatedGraphsDeathTest, AreCheckedForOrderAndMemoryAtEachLaunch) {
  const auto unordered = [this] {
    const Graph graph(stream_, [this] { copy(second_, first_, stream_); });
    graph.launch(stream_);
    fill(second_, 1, other_);
  };
  EXPECT_DEATH(unordered(), "not ordered: 'fill' on stream .* that 'copy, device to device' on");
  const auto freed = [this] {
    void* gone = nullptr;
    cudaMalloc(&gone, kBytes);
    const Graph graph(stream_, [&] { cudaMemsetAsync(gone, 0, kBytes, stream_); });
    cudaFree(gone);
    graph.launch(stream_);
  };
  EXPECT_DEATH(freed(), "fill");
}

}  // namespace
}  // namespace spillway::emulated
