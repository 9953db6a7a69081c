// Marks on streams of the emulated CUDA.
#include "stream_marks.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/device/all_of.h"
#include "spillway/device/cuda/cuda_backend.h"
#include "spillway/device/devices.h"
#include "support/emulated_cuda/runtime/emulation.h"

namespace spillway::torch_binding {
namespace {

using testing::HasSubstr;

unsigned long long recorded_events() { return emu_cuda_calls("cudaEventRecord"); }

class StreamMarksTest : public testing::Test {
 protected:
  /// Work that goes on until the promise is kept.
  void give(std::promise<void>& end) {
    stream_->run([ended = std::make_shared<std::future<void>>(end.get_future())] {
      ended->wait();
      return device::Outcome();
    });
  }

  const std::unique_ptr<device::Device> device_ =
      device::open_device({device::DeviceKind::kCuda, 0}, std::array{device::cuda_backend()});
  const std::unique_ptr<device::Queue> stream_ = device_->make_queue("of the program");
  std::atomic<bool> is_capturing_{false};
  const std::shared_ptr<StreamMarks> marks_ = std::make_shared<StreamMarks>(
      device::queue_over_stream(*device_, device::stream_of(*stream_)),
      [this] { return is_capturing_.load(); });
};

TEST_F(StreamMarksTest, AMarkIsDoneWhenTheWorkBeforeItHasEnded) {
  std::promise<void> first_end;
  give(first_end);
  const device::Event mark = marks_->mark();
  EXPECT_FALSE(mark.is_done());
  first_end.set_value();
  EXPECT_EQ(mark.wait().error, "");
  EXPECT_TRUE(mark.is_done());
}

TEST_F(StreamMarksTest, WorkThatComesLaterIsNotWaitedForByWhoHasAskedBefore) {
  std::promise<void> first_end;
  give(first_end);
  const device::Event mark = marks_->mark();
  EXPECT_FALSE(mark.is_done());  // From here on an event stands for it.
  std::promise<void> second_end;
  give(second_end);
  const device::Event later = marks_->mark();
  first_end.set_value();
  EXPECT_EQ(mark.wait().error, "");
  EXPECT_TRUE(mark.is_done());
  EXPECT_FALSE(later.is_done());
  second_end.set_value();
  EXPECT_EQ(later.wait().error, "");
}

TEST_F(StreamMarksTest, OneEventServesAllThatWereMadeBeforeSomebodyAsks) {
  constexpr int kMarks = 1000;
  const auto before = recorded_events();
  std::vector<device::Event> marks;
  for (int i = 0; i < kMarks; ++i) marks.push_back(marks_->mark());
  EXPECT_EQ(recorded_events(), before);
  EXPECT_EQ(marks.back().wait().error, "");
  for (const device::Event& mark : marks) EXPECT_TRUE(mark.is_done());
  EXPECT_EQ(recorded_events(), before + 1);
}

TEST_F(StreamMarksTest, AQuestionCostsOneCallWhileTheStreamGoesOn) {
  std::promise<void> end;
  give(end);
  const device::Event first = marks_->mark();
  EXPECT_FALSE(first.is_done());
  const device::Event second = marks_->mark();
  const auto before = emu_cuda_calls("cudaEventQuery");
  EXPECT_FALSE(first.is_done());
  EXPECT_FALSE(second.is_done());
  EXPECT_EQ(emu_cuda_calls("cudaEventQuery"), before + 2);
  EXPECT_EQ(first.state()->line(), second.state()->line());
  end.set_value();
  EXPECT_EQ(second.wait().error, "");
}

TEST_F(StreamMarksTest, AnIdleStreamIsSeenAtTheFirstQuestion) {
  EXPECT_TRUE(marks_->mark().is_done());
  stream_->run([] { return device::Outcome(); });
  // An event of the stream is done a moment before the stream is idle.
  EXPECT_EQ(cudaStreamSynchronize(static_cast<cudaStream_t>(device::stream_of(*stream_))),
            cudaSuccess);
  EXPECT_TRUE(marks_->mark().is_done());
}

TEST_F(StreamMarksTest, AStreamThatIsCapturedIsLeftAlone) {
  const device::Event mark = marks_->mark();
  is_capturing_ = true;
  const auto before = recorded_events();
  EXPECT_FALSE(mark.is_done());
  EXPECT_THAT(mark.wait().error, HasSubstr("a stream of cuda:0 is being captured into a graph"));
  EXPECT_EQ(mark.state()->obstacle(), mark.wait().error);
  EXPECT_EQ(recorded_events(), before);
  is_capturing_ = false;
  EXPECT_EQ(mark.wait().error, "");
  EXPECT_TRUE(mark.is_done());
}

/// Another thread begins a capture after the question whether there is one; it may be over by the
/// next question.
TEST_F(StreamMarksTest, ACaptureThatBeginsBesideAQuestionMakesNoMarkDone) {
  auto* const stream = static_cast<cudaStream_t>(device::stream_of(*stream_));
  for (const bool is_short : {false, true}) {
    SCOPED_TRACE(is_short);
    int questions = 0;
    cudaGraph_t graph = nullptr;
    const auto end_capture = [&] { return cudaStreamEndCapture(stream, &graph); };
    const auto marks =
        std::make_shared<StreamMarks>(device::queue_over_stream(*device_, stream), [&, is_short] {
          if (++questions == 1)
            return cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess;
          if (questions == 2 && is_short) {
            EXPECT_EQ(end_capture(), cudaSuccess);
          }
          return device::is_stream_captured(stream);
        });
    std::promise<void> end;
    give(end);
    const device::Event mark = marks->mark();
    EXPECT_FALSE(mark.is_done());
    EXPECT_FALSE(mark.is_done());
    if (!is_short) {
      EXPECT_EQ(end_capture(), cudaSuccess) << "the question has broken it";
    }
    EXPECT_FALSE(mark.is_done());
    end.set_value();
    EXPECT_EQ(mark.wait().error, "");
    EXPECT_TRUE(mark.is_done());
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }
}

TEST_F(StreamMarksTest, AStreamThatCannotWaitForAnotherOneSaysSo) {
  auto* const stream = static_cast<cudaStream_t>(device::stream_of(*stream_));
  const auto marks = std::make_shared<StreamMarks>(device::queue_over_stream(*device_, stream),
                                                   [] { return false; });
  const device::Event end = device_->make_queue("another one")->record();
  marks->let_wait(end);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_THROW(marks->let_wait(end), Error);
  cudaGraph_t graph = nullptr;
  EXPECT_NE(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cudaGetLastError();
}

TEST_F(StreamMarksTest, AMomentHasItsTimeAndNoneIsOfAStreamThatIsCaptured) {
  const device::Event first = marks_->moment();
  const device::Event second = marks_->moment();
  EXPECT_EQ(second.wait().error, "");
  EXPECT_GE(device::elapsed(first, second), Duration(0));
  is_capturing_ = true;
  EXPECT_EQ(marks_->moment().state(), nullptr);
}

TEST_F(StreamMarksTest, AMarkOutlivesItsMaker) {
  std::promise<void> end;
  give(end);
  auto marks = std::make_shared<StreamMarks>(
      device::queue_over_stream(*device_, device::stream_of(*stream_)), [] { return false; });
  const device::Event mark = marks->mark();
  marks.reset();
  EXPECT_FALSE(mark.is_done());
  end.set_value();
  EXPECT_EQ(mark.wait().error, "");
}

TEST_F(StreamMarksTest, SeveralAreDoneWhenTheLastOneIs) {
  const auto other_stream = device_->make_queue("another one");
  const auto other = std::make_shared<StreamMarks>(
      device::queue_over_stream(*device_, device::stream_of(*other_stream)), [] { return false; });
  std::promise<void> end;
  give(end);
  const device::Event both = device::all_of({other->mark(), device::Event(), marks_->mark()});
  EXPECT_TRUE(other->mark().wait().succeeded());
  EXPECT_FALSE(both.is_done());
  end.set_value();
  EXPECT_EQ(both.wait().error, "");
  EXPECT_TRUE(both.is_done());
  EXPECT_TRUE(device::all_of({}).is_done());
  EXPECT_TRUE(device::all_of({device::Event()}).is_done());
}

TEST_F(StreamMarksTest, MarksHaveNoTime) {
  EXPECT_THROW(marks_->mark().state()->time_since(*marks_->mark().state()), Error);
}

TEST_F(StreamMarksTest, ManyThreadsMakeMarksAndAskForThem) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 200;
  std::vector<std::thread> threads;
  std::array<std::atomic<int>, kThreads> ended{};
  for (int thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      for (int round = 1; round <= kRounds; ++round) {
        stream_->run([&ended, thread, round] {
          ended.at(static_cast<std::size_t>(thread)) = round;
          return device::Outcome();
        });
        const device::Event mark = marks_->mark();
        if (round % 3 == 0) mark.wait();
        if (!mark.is_done()) continue;
        EXPECT_GE(ended.at(static_cast<std::size_t>(thread)).load(), round);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace spillway::torch_binding
