#pragma once

#include <memory>
#include <random>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/swap/spill_store.h"
#include "store/mapped_memory.h"
#include "store/notifier.h"
#include "support/forwarding_store.h"

namespace spillway::swap {

/// Chances per transfer, from 0 to 1; independent of each other.
struct FaultOptions {
  std::uint64_t seed = 0;
  double failing = 0.0;           ///< Nothing moves; the error is one of `errors`.
  double breaking_off = 0.0;      ///< The first half moves, then EIO.
  double flipping_writes = 0.0;   ///< One bit of what is stored is wrong; no error.
  double flipping_reads = 0.0;    ///< One bit of what comes back is wrong; no error.
  double delaying = 0.0;          ///< Reported some reaps later, after younger ones.
  std::vector<int> errors = {5};  ///< EIO.
  bool spares_reads = false;      ///< Reads neither fail nor break off.
  bool spares_writes = false;     ///< The same of writes.
  std::size_t transfers_until_death = static_cast<std::size_t>(-1);  ///< Then every write fails.
};

/// A store that fails by seed: the same seed and the same calls give the same faults.
class FaultStore final : public ForwardingStore {
 public:
  FaultStore(std::unique_ptr<SpillStore> child, std::shared_ptr<Notifier> notifier,
             FaultOptions options);

 private:
  struct Held {
    TransferResult result;
    int reaps_left = 0;
  };
  struct Route {
    Transfer original;
    int error = 0;  // reported in place of success
    bool flips_read = false;
    bool is_idle = true;
  };

  void do_submit(const Transfer& transfer) override;
  void do_reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) override;
  void do_wake() override { wait_.wake(); }

  bool chance(double probability);
  std::size_t idle_route() const;
  void flip_a_bit(std::byte* memory, std::size_t size);
  void hold(TransferResult result);
  void collect(std::vector<TransferResult>& results);

  ReapWait wait_;
  FaultOptions options_;
  std::mt19937_64 random_;
  MappedMemory copies_;  // a page per route, for what is stored in place of the caller's bytes
  std::vector<Route> routes_;
  std::vector<Held> held_;
  std::size_t submitted_ = 0;
};

enum class Faults {
  kAll,
  kOfWrites,  ///< Writes fail and say so; what was written can be read.
};

/// A disk of `capacity` with as many faults as `random` will have it, below checksums and retries.
/// `clock` outlives it.
std::unique_ptr<SpillStore> make_faulty_disk(std::mt19937_64& random, Faults kinds, Bytes capacity,
                                             std::shared_ptr<Notifier> notifier,
                                             const Clock& clock);

}  // namespace spillway::swap
