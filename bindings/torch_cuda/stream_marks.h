#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "spillway/device/device.h"

namespace spillway::torch_binding {

/// Moments in the work of one stream that cost no call of the device: each is a number. Once
/// somebody asks for one, an event is recorded at the end of the stream, as it is then, and serves
/// all marks until there. So an answer may come late, and is never too early. Any thread.
class StreamMarks : public std::enable_shared_from_this<StreamMarks> {
 public:
  /// `queue`: over the stream, which outlives this. `is_capturing`: whether a graph is made of what
  /// the stream is given; its events mean nothing then, so no mark is done that was not before.
  StreamMarks(std::unique_ptr<device::Queue> queue, std::function<bool()> is_capturing);

  /// When all has ended that the calling thread has given the stream so far.
  device::Event mark();

  /// The same as an event of the device, with its time; the default one while the stream is
  /// captured.
  device::Event moment();

  /// The end of all that the stream was given so far, and has it wait for another's; nothing while
  /// it is captured. Throws Error where CUDA refuses the wait.
  device::Event end_so_far();
  void let_wait(const device::Event& end);

 private:
  class Mark;
  struct Recorded {
    std::uint64_t until;  ///< The last mark that it covers.
    device::Event event;
  };

  bool is_done(std::uint64_t number);
  device::Outcome wait(std::uint64_t number);
  std::string obstacle(std::uint64_t number);
  std::string text_of_capture() const;
  device::Event recorded(device::Timing timing);
  const Recorded* covering_locked(std::uint64_t number);
  void forget_done_locked();

  const std::unique_ptr<device::Queue> queue_;
  const std::function<bool()> is_capturing_;
  std::atomic<std::uint64_t> given_{0};  ///< Marks so far.
  std::atomic<std::uint64_t> done_{0};   ///< They are done until this one.
  std::mutex mutex_;
  std::deque<Recorded> recorded_;  ///< In the order of the stream.
};

}  // namespace spillway::torch_binding
