#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "spillway/transport/transport.h"

namespace spillway::transport {

/// Ranks as threads that run at the same time, with messages between them: a host transport for
/// devices that work by themselves, for which InProcessRanks are too orderly.
class ThreadRanks {
 public:
  explicit ThreadRanks(std::uint32_t ranks);
  ~ThreadRanks();
  ThreadRanks(const ThreadRanks&) = delete;
  ThreadRanks& operator=(const ThreadRanks&) = delete;

  /// Runs `body` once for each rank. Throws what the lowest rank has thrown.
  void run(const std::function<void(Transport&)>& body);
  /// Inside of `body`: another thread, which ends before `run` does.
  void start(std::function<void()> work);
  /// Nothing that `rank` sends from now on arrives.
  void silence(Rank rank);

 private:
  struct World;
  class Member;
  const std::unique_ptr<World> world_;
};

}  // namespace spillway::transport
