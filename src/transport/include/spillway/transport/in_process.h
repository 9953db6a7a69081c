#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "spillway/base/bytes.h"
#include "spillway/base/clock.h"
#include "spillway/transport/transport.h"

namespace spillway::transport {

struct InProcessOptions {
  std::uint32_t ranks = 2;
  std::uint64_t seed = 0;  ///< Of the order in which ranks run, and of delays.
  Duration latency{0};     ///< From the start of a message to its first byte.
  Duration most_delay{0};  ///< Added to each message by chance, so that later ones overtake it.
  double bytes_per_second = 0;  ///< Of each pair of ranks and direction; 0: without limit.
  /// Sends end when the message was received, as those of MPI may where it has no buffer for it.
  bool sends_wait = false;
  struct Death {
    Rank rank;
    std::uint64_t after = 0;  ///< Messages and waits.
  };
  std::optional<Death> death = std::nullopt;
};

/// Ranks as threads of this process, for tests and simulations that any seed repeats: one of them
/// runs at a time, until it waits; who is next is drawn. Time stands still while a rank runs and
/// jumps where all wait. Where nothing could ever wake any of them, all waits throw TransportError
/// that says who waits for what. Threads that the body starts are not known here, and must not use
/// the transport.
class InProcessRanks {
 public:
  explicit InProcessRanks(const InProcessOptions& options);
  ~InProcessRanks();
  InProcessRanks(const InProcessRanks&) = delete;
  InProcessRanks& operator=(const InProcessRanks&) = delete;

  using Body = std::function<void(Transport&)>;
  /// Runs `body` once for each rank, and returns when all have ended. Throws what the lowest rank
  /// has thrown that did not end because of another one. A rank that dies throws nothing. Once.
  void run(const Body& body);

  /// Inside of `body`: another thread of the rank that runs, which ends before `run` does.
  void start(std::function<void()> work);

  /// Inside of `body`: lets so much time pass for the rank that runs, as work does.
  void work(Duration time);

  /// Counts from 0 when `run` begins.
  const Clock& clock() const;

 private:
  class World;
  std::unique_ptr<World> world_;
};

}  // namespace spillway::transport
