#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "spillway/swap/storage_range.h"

namespace spillway::runtime {

using swap::RangeId;
using swap::RangePart;
using swap::RangeUse;

/// Shows large storages that are used in parts to the learner as several storages, so that the plan
/// moves the pages that an operator needs and not the whole. The learner's ids are even for whole
/// storages and odd for pieces.
class StoragePieces {
 public:
  /// Storages of more than `large_pages` are large; none: of more than an eighth of the budget.
  explicit StoragePieces(std::uint32_t budget_pages,
                         std::optional<std::uint32_t> large_pages = std::nullopt);

  bool is_large(std::uint32_t pages) const { return pages > large_pages_; }

  static RangeId whole(RangeId range) { return RangeId(2 * range.value()); }
  static bool is_whole(RangeId id) { return id.value() % 2 == 0; }
  static RangeId range_of(RangeId whole) { return RangeId(whole.value() / 2); }
  RangePart part_of(RangeId id) const;

  /// What the learner is told of an operator: whole storages and pieces, each once. A large storage
  /// is cut up the first time that it is used in part; the learner's id that it had until then is
  /// appended to `ended`.
  void translate(std::span<const RangeUse> uses, std::vector<RangeUse>& translated,
                 std::vector<RangeId>& ended);

  /// A storage dies: appends the learner's ids of it to `ended`.
  void freed(RangeId range, std::vector<RangeId>& ended);

 private:
  void cut(RangeId range, std::uint32_t pages);

  std::uint32_t large_pages_;
  std::uint32_t piece_pages_;
  std::vector<RangePart> pieces_;
  std::vector<std::uint32_t> free_pieces_;
  std::unordered_map<RangeId, std::vector<std::uint32_t>> cut_;  ///< By storage, in page order.
};

}  // namespace spillway::runtime
