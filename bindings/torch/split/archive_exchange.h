#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "device_bytes.h"
#include "spillway/base/bytes.h"
#include "spillway/pipeline/agreement/job.h"
#include "spillway/pipeline/ownership/directory.h"
#include "spillway/runtime/runtime.h"
#include "spillway/transport/transport.h"

namespace spillway::split {

/// The first rank writes a program's archives, whatever their order is there: optimizers save their
/// states in the order of addresses, which differs between ranks. It asks whoever holds a tensor
/// when it comes to it. A holder keeps the bytes as they are until it has been asked for all that
/// its program has archived meanwhile; a thread of its own answers. A question tells behind which
/// call of the program it comes, so bytes of another step never get into an archive. Where the
/// first rank has gone on without its archive, as with a full disk, the holders do, too.
class ArchiveExchange {
 public:
  ArchiveExchange(runtime::Runtime& runtime, transport::Transport& transport, pipeline::Job& job,
                  const DeviceBytes& devices);
  /// The thread ends with `stop`.
  ~ArchiveExchange();
  ArchiveExchange(const ArchiveExchange&) = delete;
  ArchiveExchange& operator=(const ArchiveExchange&) = delete;

  /// On the first rank: fills `memory`, which is not paged, with the bytes of a storage.
  /// Throws TransportError.
  void fetch(Rank holder, pipeline::StorageOrdinal storage, device::DeviceSpan memory);

  /// On a holder: the first rank will ask for these bytes. Before the program's next call,
  /// `wait_for_all`.
  void owe(pipeline::StorageOrdinal storage, device::DeviceSpan bytes);
  /// The same of bytes on a GPU.
  void owe(pipeline::StorageOrdinal storage, const c10::Storage& bytes);
  /// Or has paid what may be asked for again.
  bool owes_any() const noexcept { return owes_.load(std::memory_order_relaxed); }
  /// Waits until the first rank has that storage, or all.
  void wait_for(pipeline::StorageOrdinal storage);  ///< Not on the program's thread.
  void wait_for_all();                              ///< On that.

  /// On the first rank, when all programs have ended: so do the threads of the others.
  void stop() noexcept;

 private:
  struct Owed {
    device::DeviceSpan bytes;
    c10::Storage on_device;   ///< Those, where that has memory.
    std::uint32_t times = 0;  ///< 0: it is paid, and may be asked for again.
  };
  struct Question {
    std::uint64_t storage = 0;
    std::uint64_t calls = 0;  ///< That the program of the first rank has made.
  };
  void owe(pipeline::StorageOrdinal storage, device::DeviceSpan bytes,
           const c10::Storage& on_device);
  void answer();
  void pay(const Question& asked, std::uint64_t number);
  void forget_locked();

  runtime::Runtime& runtime_;
  transport::Transport& transport_;
  pipeline::Job& job_;
  const DeviceBytes& devices_;
  std::unordered_map<Rank, std::uint64_t> asked_;  ///< Of each holder, on the first rank.
  std::mutex mutex_;
  std::condition_variable changed_;  ///< For the thread that answers.
  /// Until the next call: the first rank asks again where a write has failed and its program tries
  /// once more.
  std::unordered_map<pipeline::StorageOrdinal, Owed> owed_;
  std::size_t unpaid_ = 0;         ///< Of them.
  bool is_waited_for_ = false;     ///< The program will archive no more behind that call.
  std::uint64_t owed_behind_ = 0;  ///< So many calls of the program.
  std::atomic<bool> owes_{false};
  std::thread thread_;  ///< Of holders.
};

}  // namespace spillway::split
