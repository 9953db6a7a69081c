#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "nccl_api.h"
#include "shared_block.h"

/// One rank of a communicator. NCCL declares the type.
struct ncclComm : std::enable_shared_from_this<ncclComm> {
 public:
  ncclComm(spillway::emulated::SharedBlock* block, std::string name, int ranks, int rank);
  ~ncclComm();
  ncclComm(const ncclComm&) = delete;
  ncclComm& operator=(const ncclComm&) = delete;

  /// Waits until all ranks are there.
  bool meet();

  /// Pieces of work of a communicator run one after the other, in the order of their launches,
  /// whatever their streams.
  std::uint64_t take_turn();
  void begin_turn(std::uint64_t turn);
  void end_turn();

  /// The communicator of those ranks that call with the same color, in the order of their keys;
  /// null for kNcclNoColor.
  ncclResult_t split(int color, int key, ncclComm_t* part);
  /// The same behind the call: `part` is written when all have come, or the communicator is
  /// aborted.
  ncclResult_t begin_split(int color, int key, ncclComm_t* part);

  spillway::emulated::SharedBlock& block() const { return *block_; }
  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  int device() const { return device_; }

  /// Calls need not wait for the other ranks any more.
  void stop_blocking() { blocks_ = false; }
  bool blocks() const { return blocks_; }
  /// A call of one that does not block goes on after it has returned.
  ncclResult_t leave_in_progress();
  ncclResult_t ask_for_progress();
  bool is_in_progress() const { return is_in_progress_; }

 private:
  spillway::emulated::SharedBlock* const block_;
  const std::string name_;
  const int ranks_;
  const int rank_;
  const int device_;
  std::mutex mutex_;
  std::condition_variable turned_;
  std::uint64_t taken_ = 0;
  std::uint64_t turn_ = 0;
  int splits_ = 0;
  bool blocks_ = true;
  bool is_in_progress_ = false;
  std::thread splitting_;
  std::atomic<bool> is_splitting_{false};
};

namespace spillway::emulated {

/// Makes a rank, without waiting for the others.
ncclResult_t make_communicator(ncclComm_t* comm, const std::string& name, int ranks, int rank);

/// What ncclGetLastError says to this thread.
std::string& last_nccl_text();
ncclResult_t refuse(ncclResult_t error, std::string text);

}  // namespace spillway::emulated
