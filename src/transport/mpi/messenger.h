#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "matching.h"
#include "site.h"
#include "spillway/transport/mpi.h"
#include "wire.h"

namespace spillway::transport::mpi {

/// This rank: a thread that makes all calls of MPI, and what other threads leave for it.
class Messenger final : private Wire::Listener {
 public:
  /// Returns when all ranks have come. Throws as make_mpi_transport.
  explicit Messenger(const MpiOptions& options);
  /// Returns when all ranks have left; as ~MpiTransport.
  ~Messenger();
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  Rank rank() const { return Rank(static_cast<std::uint32_t>(world_.rank)); }
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(world_.ranks); }
  const MpiJob& job() const { return job_; }

  device::Event send(Rank to, Tag tag, device::DeviceSpan bytes);
  device::Event receive(Rank from, Tag tag, device::DeviceSpan bytes);
  std::unique_ptr<Notifier> make_notifier(std::optional<Stream> stream);
  [[noreturn]] void abort(const std::string& reason);

 private:
  class RankNotifier;

  struct Order {
    Name name{};
    Letter letter{};  ///< Of a send,
    device::DeviceSpan bytes{};
    bool is_told = true;
    std::optional<DataReceive> data{};  ///< or what is to be received.
  };

  void run_on_mpi_thread();
  void join_on_mpi_thread();
  void check_launcher_on_mpi_thread();
  void find_hosts_on_mpi_thread();
  void exchange_on_mpi_thread();
  bool carry_out_orders_on_mpi_thread();
  void drain_on_mpi_thread();
  bool have_all_left() const;
  void rest(bool has_moved);

  void take_letter(Rank from, const Envelope& envelope, std::span<const std::byte> inside) override;
  void end_send(const Name& name) override;
  void end_receive(const Name& name) override;

  void order_locked(Order order);
  void check_job_locked() const;
  void fail(const std::string& reason);
  void tell_locked();
  std::string absent_ranks_locked() const;

  const MpiOptions options_;

  // Written on the MPI thread before the constructor returns.
  Site site_;
  ShimWorld world_{};
  MpiJob job_;
  bool is_ours_ = false;
  std::exception_ptr refusal_;

  // Of the MPI thread.
  std::optional<Wire> wire_;
  std::vector<std::uint64_t> letters_from_;      ///< Of each rank, so far,
  std::vector<std::uint64_t> letters_expected_;  ///< and in all; 0: it has not left.
  bool is_leaving_ = false;
  TimePoint moved_at_{};

  mutable std::mutex mutex_;
  std::condition_variable wake_;     ///< The MPI thread.
  std::condition_variable changed_;  ///< `stage_`.
  enum class Stage { kJoining, kRunning, kEnded } stage_ = Stage::kJoining;
  bool is_expecting_ = false, is_ending_ = false, is_aborting_ = false;
  std::string failure_;
  std::optional<Matching> matching_;
  std::vector<Order> orders_;
  std::vector<RankNotifier*> notifiers_;

  std::thread thread_;
};

}  // namespace spillway::transport::mpi
