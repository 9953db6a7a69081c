#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::pipeline {

/// What a rank's program has done so far, as a number. Ranks compare theirs: as long as they are
/// equal, all have made the same calls with the same arguments. Addresses are no part of it, as
/// they differ between ranks. One thread makes the calls, and any may look at those that have
/// ended.
///   hash.begin_call(name);
///   hash.add(ordinal);
///   hash.end_call();
class ControlHash {
 public:
  static constexpr std::size_t kArguments = 12;  ///< That are told apart; the last stands for more.
  static constexpr std::size_t kKept = 1u << 14;  ///< Calls that a rank can look back at.
  /// The name of the call that stands for the end of a program.
  static constexpr std::string_view kEndOfProgram = "the end of the program";
  /// All ranks make it before the first call on a GPU.
  static constexpr std::string_view kFirstUseOfGpu = "messages between GPUs";

  /// A call, to be told apart from that of another rank.
  struct Call {
    std::uint64_t index = 0;  ///< Counted from 0.
    std::string_view name;    ///< Outlives this.
    std::uint64_t after = 0;  ///< The hash behind it.
    std::uint32_t count = 0;  ///< Of arguments.
    std::array<std::uint32_t, kArguments> arguments{};
    std::uint32_t data = 0;  ///< Of the bytes that it reads of the program's own; 0: of none.
  };

  /// How far a program has come.
  struct Position {
    std::uint64_t calls = 0;  ///< That have ended.
    std::uint64_t value = 0;  ///< The hash behind them.
  };

  /// `name` outlives this: an operator's, with its overload.
  void begin_call(std::string_view name);
  /// The next argument: a shape, a type, a number, a storage, or who owns the call. Order counts.
  void add(std::uint64_t argument);
  /// The bytes that the call reads and that the program has made itself, as a number.
  void add_data(std::uint64_t bytes);
  void end_call();

  Position position() const;
  std::uint64_t value() const { return position().value; }
  std::uint64_t calls() const { return position().calls; }
  /// The hash behind the first `calls` calls. Nothing: they are not made yet, or too long ago.
  std::optional<std::uint64_t> value_after(std::uint64_t calls) const;
  /// The latest calls, at most so many, oldest first.
  std::vector<Call> latest(std::size_t most = kKept) const;

 private:
  const Call& kept_locked(std::uint64_t index) const { return kept_[index % kKept]; }

  // Of the thread that makes the calls.
  std::uint64_t value_ = 0;
  Call call_;

  // A call is written once, at its end: so the lock costs a call some 15 ns, and nobody sees half.
  mutable std::mutex mutex_;
  Position position_;
  std::vector<Call> kept_;  ///< A ring once it has kKept.
};

/// The latest calls of a rank, and its name in texts.
struct NamedCalls {
  std::string rank;
  std::vector<ControlHash::Call> calls;
};

/// Where two ranks went apart.
struct Difference {
  /// A sentence without an end that names the call and the argument, or says that it was before all
  /// of the calls that are known.
  std::string text;
  bool is_of_data = false;  ///< The programs did the same, with other data.
  bool is_of_end = false;   ///< One has ended, and the other went on.
  bool is_of_gpu = false;   ///< One begins to use a GPU, and the other did something else.
};

/// Nothing: they did not.
std::optional<Difference> first_difference(const NamedCalls& one, const NamedCalls& other);

}  // namespace spillway::pipeline
