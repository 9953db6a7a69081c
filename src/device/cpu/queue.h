#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "spillway/device/device.h"

namespace spillway::device {

/// A thread as a queue. Its thread takes no signals of the program.
class CpuQueue final : public Queue {
 public:
  CpuQueue(DeviceId device, const std::string& name, std::shared_ptr<const Clock> clock);
  ~CpuQueue() override;

 private:
  void do_copy(DeviceSpan to, DeviceSpan from) override;
  void do_run(std::function<Outcome()> work) override;
  Event do_record(Timing timing) override;
  void do_wait(const std::shared_ptr<const EventState>& event) override;

  /// Has a name of its own for the list of what the thread sanitizer cannot see.
  static void copy_now(DeviceSpan to, DeviceSpan from);
  void push(std::function<void()> task);
  void work_off();

  const std::shared_ptr<const Clock> clock_;
  std::string failure_;  // Since the latest event; the queue's own thread only.

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool is_ending_ = false;
  std::thread thread_;  // Last: it uses everything above.
};

}  // namespace spillway::device
