#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "spillway/base/storage_id.h"
#include "spillway/base/strong_id.h"
#include "spillway/swap/storage_range.h"

namespace spillway::runtime {

using swap::RangePart;
using swap::RangeUse;

/// What plans move as a whole: a storage, or a piece of a large one. Dense numbers, used again once
/// the storage has ended.
using PieceId = StrongId<struct PieceTag>;

/// How an operator uses a piece.
struct PieceUse {
  PieceId piece;
  std::uint32_t pages = 0;
  bool writes = false;
};

/// Shows large storages that are used in parts to the learner as several pieces, so that the plan
/// moves the pages that an operator needs and not the whole. Not thread-safe.
class StoragePieces {
 public:
  /// Storages of more than `large_pages` are large; none: of more than an eighth of the budget.
  explicit StoragePieces(std::uint32_t budget_pages,
                         std::optional<std::uint32_t> large_pages = std::nullopt);

  bool is_large(std::uint32_t pages) const { return pages > large_pages_; }

  /// The piece that is all of a storage. Storages that have one slot after each other share it.
  PieceId whole(StorageId storage);
  /// Where a piece lies.
  const RangePart& part_of(PieceId piece) const { return pieces_[piece.value()]; }
  /// Whether it is all of a storage. A piece never changes in that.
  bool is_whole(PieceId piece) const { return is_whole_[piece.value()]; }

  /// What the learner is told of an operator: whole storages and pieces, each once. A large storage
  /// is cut up the first time that it is used in part; the piece that it was until then is appended
  /// to `ended`.
  void translate(std::span<const RangeUse> uses, std::vector<PieceUse>& translated,
                 std::vector<PieceId>& ended);

  /// A storage ends: appends its pieces to `ended`.
  void freed(StorageId storage, std::vector<PieceId>& ended);

 private:
  PieceId new_piece(const RangePart& part, bool is_whole);
  void cut(StorageId storage, std::uint32_t pages);

  std::uint32_t large_pages_;
  std::uint32_t piece_pages_;
  std::vector<RangePart> pieces_;
  std::vector<bool> is_whole_;
  std::vector<PieceId> whole_of_slot_;
  std::vector<PieceId> free_pieces_;                         ///< Of storages that were cut up.
  std::unordered_map<StorageId, std::vector<PieceId>> cut_;  ///< In page order.
};

}  // namespace spillway::runtime
