#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "spillway/base/mix.h"
#include "spillway/profile/step_tape.h"

namespace spillway::profile {

/// The signatures of a step's operators, with what is needed to find one's place in them.
class OpSequence {
 public:
  /// How many operators in a row identify a place.
  static constexpr std::uint32_t kGram = 8;

  OpSequence() = default;
  explicit OpSequence(std::span<const TapeOp> ops);

  std::uint32_t size() const { return static_cast<std::uint32_t>(signatures_.size()); }
  std::uint64_t operator[](OpIndex op) const { return signatures_[op]; }

  /// Hash of the first `length` operators; the same as `mix` applied from 0 on.
  std::uint64_t prefix(std::uint32_t length) const {
    return length == 0 ? 0 : prefixes_[length - 1];
  }
  std::uint64_t identity() const { return prefix(size()); }

  /// The only place whose last kGram operators have this hash (see `gram_hash`), if there is one.
  std::optional<OpIndex> find_gram(std::uint64_t hash) const;

  /// Hash of kGram signatures, oldest first.
  static std::uint64_t gram_hash(std::span<const std::uint64_t, kGram> signatures);

 private:
  std::vector<std::uint64_t> signatures_;
  std::vector<std::uint64_t> prefixes_;
  std::vector<std::pair<std::uint64_t, OpIndex>> grams_;  ///< Sorted; unique ones only.
};

/// The smallest period, at least `minimum`, with which the tail of `ops` repeats: twice for long
/// periods; four times and over most of `ops` for short ones, since layers inside a step repeat
/// too.
std::optional<std::uint32_t> find_period(std::span<const TapeOp> ops, std::uint32_t minimum);

}  // namespace spillway::profile
