#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "spillway/pipeline/ownership/ownership.h"
#include "spillway/transport/transport.h"

namespace spillway::pipeline {

/// The memory of one rank, and what runs its operators.
class Memory {
 public:
  virtual ~Memory() = default;
  /// Runs an operator, now or later; what it makes.
  virtual std::vector<StorageOrdinal> run(const OperatorCall& call, std::size_t results) = 0;
  /// Runs one that returns a number to the program.
  virtual std::uint64_t ask(StorageOrdinal of) = 0;
  virtual void end(StorageOrdinal storage) = 0;
};

std::vector<MadeStorage> of_no_size(const std::vector<StorageOrdinal>& made);

/// How a rank breaks the rules, to see that it is noticed.
enum class Fault : std::uint8_t {
  kNone,
  kKeepsWhatOthersWrite,  ///< Takes its bytes for current where another rank has written.
  kLosesAMessage,         ///< Leaves out the third that it is to send.
  kCutsElsewhere,         ///< Deals parameters otherwise than other ranks do.
};

/// A number for the bytes of each storage that a rank has. Operators are hashes of what they read,
/// so that whoever computes with other bytes gets others. Each runs at once.
class RankMemory final : public Memory {
 public:
  using Contents = std::map<std::uint64_t, std::optional<std::uint64_t>>;
  /// Throws std::logic_error for bytes that are not here.
  static std::uint64_t bytes_in(const Contents& contents, StorageOrdinal storage);

  /// One rank for all; then there are no rules.
  RankMemory() = default;
  /// The rank hears of the ends of storages some operators later, as it happens there.
  RankMemory(transport::Transport& transport, Ownership& ownership, Fault fault)
      : transport_(&transport),
        ownership_(&ownership),
        fault_(fault),
        ends_(transport.rank().value()) {}

  /// Throws std::logic_error for bytes that are not here.
  std::vector<StorageOrdinal> run(const OperatorCall& call, std::size_t results) override;
  std::uint64_t ask(StorageOrdinal of) override;
  void end(StorageOrdinal storage) override;
  /// All ranks keep the parameters of every so many operators; 0: of none.
  void replicate(std::uint64_t every) { replicates_every_ = every; }

  /// By ordinal: bytes, or none where others have them.
  const Contents& contents() const { return contents_; }

 private:
  std::uint64_t bytes_of(StorageOrdinal storage) const { return bytes_in(contents_, storage); }
  void carry_out(const Move& move);
  void hear_of_ends();

  transport::Transport* transport_ = nullptr;
  Ownership* ownership_ = nullptr;
  Fault fault_ = Fault::kNone;
  std::mt19937_64 ends_;
  std::vector<StorageOrdinal> ended_;  ///< Of which its Ownership has not heard.
  Contents contents_;
  std::uint64_t replicates_every_ = 0;
  std::uint64_t operators_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t next_ = 0;
};

/// A trainer drawn from a seed, with models one after the other: layers with skips, tied weights,
/// buffers and masks; data that require gradients; accumulation of gradients, clipping, optimizer
/// states, averages, an evaluation; parameters that are written, or replaced by others. What it
/// reads of its values steers it. `look` is called after each step.
void run_random_trainer(std::uint64_t seed, Memory& memory, const std::function<void()>& look);
/// All that one rank has after each step.
std::vector<RankMemory::Contents> contents_on_one_rank(std::uint64_t seed);
/// How many parameters its first model has.
std::size_t parameters_of_random_trainer(std::uint64_t seed);

}  // namespace spillway::pipeline
