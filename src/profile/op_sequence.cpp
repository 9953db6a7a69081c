#include "spillway/profile/op_sequence.h"

#include <algorithm>

namespace spillway::profile {

OpSequence::OpSequence(std::span<const TapeOp> ops) {
  signatures_.reserve(ops.size());
  prefixes_.reserve(ops.size());
  std::uint64_t hash = 0;
  for (const TapeOp& op : ops) {
    hash = mix(hash, op.signature);
    signatures_.push_back(op.signature);
    prefixes_.push_back(hash);
  }
  if (ops.size() < kGram) return;
  for (std::size_t end = kGram; end <= ops.size(); ++end) {
    const std::span<const std::uint64_t, kGram> gram(signatures_.data() + end - kGram, kGram);
    grams_.emplace_back(gram_hash(gram), static_cast<OpIndex>(end - 1));
  }
  std::sort(grams_.begin(), grams_.end());
  // Places that look alike identify nothing: keep those that occur once.
  std::size_t kept = 0;
  for (std::size_t i = 0; i < grams_.size();) {
    std::size_t next = i + 1;
    while (next < grams_.size() && grams_[next].first == grams_[i].first) ++next;
    if (next == i + 1) grams_[kept++] = grams_[i];
    i = next;
  }
  grams_.resize(kept);
}

std::optional<OpIndex> OpSequence::find_gram(std::uint64_t hash) const {
  const auto found = std::lower_bound(grams_.begin(), grams_.end(), hash,
                                      [](const std::pair<std::uint64_t, OpIndex>& gram,
                                         std::uint64_t key) { return gram.first < key; });
  if (found == grams_.end() || found->first != hash) return std::nullopt;
  return found->second;
}

std::uint64_t OpSequence::gram_hash(std::span<const std::uint64_t, kGram> signatures) {
  std::uint64_t hash = kGram;
  for (const std::uint64_t signature : signatures) hash = mix(hash, signature);
  return hash;
}

std::optional<std::uint32_t> find_period(std::span<const TapeOp> ops, std::uint32_t minimum) {
  constexpr std::size_t kWindow = std::size_t{1} << 16;
  constexpr std::size_t kLongPeriod = 256;
  if (ops.size() > kWindow) ops = ops.subspan(ops.size() - kWindow);
  const std::size_t count = ops.size();
  const auto newest = [&](std::size_t age) { return ops[count - 1 - age].signature; };
  // The Z-function of the operators, newest first: how far the sequence `age` ago equals the tail.
  std::vector<std::uint32_t> equal(count, 0);
  std::size_t left = 0;
  std::size_t right = 0;
  for (std::size_t age = 1; age < count; ++age) {
    std::size_t length = 0;
    if (age < right) length = std::min<std::size_t>(right - age, equal[age - left]);
    while (age + length < count && newest(length) == newest(age + length)) ++length;
    equal[age] = static_cast<std::uint32_t>(length);
    if (age + length > right) {
      left = age;
      right = age + length;
    }
    const bool is_long = age >= kLongPeriod;
    const bool repeats = length >= age * (is_long ? 1 : 3);
    // A loop of similar parameters or layers makes up only some of what happened.
    const bool prevails = is_long || (age + length) * 5 >= count * 3;
    if (age >= minimum && repeats && prevails) return static_cast<std::uint32_t>(age);
  }
  return std::nullopt;
}

}  // namespace spillway::profile
