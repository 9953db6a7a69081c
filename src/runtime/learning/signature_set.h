#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_set>

namespace spillway::runtime {

/// So many signatures of operators and no more: trainers whose shapes never repeat would fill
/// memory.
class SignatureSet {
 public:
  explicit SignatureSet(std::size_t most) : most_(most) {}

  /// Of no effect once it is full.
  void insert(std::uint64_t signature) {
    if (signatures_.size() < most_) signatures_.insert(signature);
  }
  bool contains(std::uint64_t signature) const { return signatures_.contains(signature); }

 private:
  std::size_t most_;
  std::unordered_set<std::uint64_t> signatures_;
};

}  // namespace spillway::runtime
