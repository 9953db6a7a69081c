#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agreement.h"
#include "device_work.h"
#include "post_office.h"
#include "silence_watch.h"
#include "spillway/transport/nccl/nccl_transport.h"

namespace spillway::transport::nccl {

/// This rank: a thread that writes letters to other ranks and makes all calls of NCCL, and what
/// other threads leave for it.
class Engine {
 public:
  /// Returns when all ranks have come. Throws as make_nccl_transport.
  Engine(Transport& host, device::Device& device, const NcclOptions& options);
  /// Returns when all ranks have come to their ends.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  device::DeviceId device() const { return device_.id(); }

  /// Throws Error for a name in use, and TransportError where the job has failed.
  device::Event add(std::shared_ptr<Operation> operation);
  /// The group of `groups` with this rank has the returned number; 0: none has.
  std::uint32_t make_groups(const std::vector<std::vector<Rank>>& groups);
  std::unique_ptr<Notifier> make_notifier(std::optional<Stream> stream);

 private:
  class RankNotifier;
  struct Name {
    Circle circle;
    std::uint32_t place = 0;
    std::uint64_t number = 0;
    auto operator<=>(const Name&) const = default;
  };
  using Operations = DeviceWork::Operations;
  /// For the NCCL thread; with a text where that has failed.
  using Task = std::function<void(const std::string& failure)>;

  static Name name_of(const Circle& circle, const Request& request) {
    return {circle, request.place, request.number};
  }

  void run_on_nccl_thread();
  void start_on_nccl_thread();
  void exchange_on_nccl_thread();
  bool take_orders();
  bool do_next_task();
  bool take_letters();
  bool carry_on();
  bool offer_what_may_be();
  void take_letter(Rank from, const Letter& letter);
  std::shared_ptr<Operation> find(const Circle& circle, const Request& request);
  void end_operation(Operation& operation, std::string error);
  void tell(const Operations& operations);
  void add_group_on_nccl_thread(std::uint32_t number, const std::vector<std::vector<Rank>>& groups);
  std::vector<Rank> awaited();
  std::string subject();
  bool has_ended();
  void rest();
  void fail(const std::string& reason);
  void check_job_locked() const;

  Transport& host_;
  device::Device& device_;
  const NcclOptions options_;
  const std::shared_ptr<Notifier> wake_;

  // Of the NCCL thread.
  Library library_;
  Agreement agreement_;
  SilenceWatch watch_;
  std::optional<PostOffice> office_;
  std::optional<DeviceWork> work_;
  Operations unready_;  ///< Their `ready` is of a message that has not begun.
  bool has_said_end_ = false, has_sent_last_ = false;
  TimePoint checked_at_{};

  mutable std::mutex mutex_;
  std::condition_variable changed_;  ///< `stage_`.
  enum class Stage { kStarting, kRunning, kEnded } stage_ = Stage::kStarting;
  std::exception_ptr refusal_;
  bool is_ending_ = false;
  std::string failure_;
  Operations orders_;
  std::vector<Task> tasks_;
  std::map<Name, std::shared_ptr<Operation>> operations_;
  std::vector<RankNotifier*> notifiers_;
  std::uint32_t groups_ = 0;

  std::thread thread_;
};

}  // namespace spillway::transport::nccl
