#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace spillway::emulated {

constexpr int kMostRanks = 16;

/// Bytes on their way from one rank to another; one thread at each end.
class Ring {
 public:
  /// Moves what fits, or what is there; gives the number of bytes.
  std::size_t push(const char* from, std::size_t bytes);
  std::size_t pop(char* to, std::size_t bytes);

 private:
  static constexpr std::size_t kBytes = 128 << 10;
  std::atomic<std::uint64_t> pushed_{0};
  std::atomic<std::uint64_t> popped_{0};
  std::array<char, kBytes> data_;
};

/// What the ranks of a communicator share, of one process or of several of one host.
struct SharedBlock {
  std::atomic<std::uint32_t> changes;  // Counts whatever others may wait for.
  std::atomic<int> joined;
  std::atomic<int> aborted;

  // Of a split: what each rank wants, and how many have said so, and read it, since the
  // communicator was made.
  std::atomic<int> said;
  std::atomic<int> read;
  std::array<std::atomic<int>, kMostRanks> color;
  std::array<std::atomic<int>, kMostRanks> key;

  std::array<std::array<Ring, kMostRanks>, kMostRanks> rings;  // [from][to]

  /// Opens the block of this name, which is made where it is not there; null where the system
  /// refuses.
  static SharedBlock* open(const std::string& name);
  static void close(SharedBlock* block);
  /// No further rank opens it.
  static void forget(const std::string& name);

  /// Something has changed: wakes who waits.
  void tell();
  /// Waits until something has changed since `changes` had this value, or a short time has passed.
  void wait(std::uint32_t seen);

  /// Waits until `done()`; false where the communicator is aborted before.
  template <class Done>
  bool wait_until(Done done) {
    for (;;) {
      const std::uint32_t seen = changes.load();
      if (done()) return true;
      if (aborted.load() != 0) return false;
      wait(seen);
    }
  }
};

}  // namespace spillway::emulated
