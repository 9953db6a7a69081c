#include "spillway/runtime/recording/storage_pieces.h"

#include <algorithm>

namespace spillway::runtime {

namespace {
constexpr std::uint32_t kLargeShare = 8;  // Of the budget: smaller storages move as a whole.
constexpr std::uint32_t kPieceShare = 16;
}  // namespace

StoragePieces::StoragePieces(std::uint32_t budget_pages, std::optional<std::uint32_t> large_pages)
    : large_pages_(large_pages.value_or(std::max(1U, budget_pages / kLargeShare))),
      piece_pages_(std::max(1U, budget_pages / kPieceShare)) {}

PieceId StoragePieces::new_piece(const RangePart& part, bool is_whole) {
  pieces_.push_back(part);
  is_whole_.push_back(is_whole);
  return PieceId(static_cast<std::uint32_t>(pieces_.size() - 1));
}

PieceId StoragePieces::whole(StorageId storage) {
  if (storage.slot() >= whole_of_slot_.size()) whole_of_slot_.resize(storage.slot() + 1);
  PieceId& whole = whole_of_slot_[storage.slot()];
  if (!whole.is_some()) whole = new_piece(storage, true);
  pieces_[whole.value()].storage = storage;
  return whole;
}

void StoragePieces::cut(StorageId storage, std::uint32_t pages) {
  std::vector<PieceId>& pieces = cut_[storage];
  for (std::uint32_t first = 0; first < pages; first += piece_pages_) {
    const RangePart part(storage, first, std::min(piece_pages_, pages - first));
    if (free_pieces_.empty()) {
      pieces.push_back(new_piece(part, false));
    } else {
      pieces.push_back(free_pieces_.back());
      pieces_[pieces.back().value()] = part;
      free_pieces_.pop_back();
    }
  }
}

void StoragePieces::translate(std::span<const RangeUse> uses, std::vector<PieceUse>& translated,
                              std::vector<PieceId>& ended) {
  translated.clear();
  const auto add = [&](PieceId piece, std::uint32_t pages, bool writes) {
    // Uses of one storage stand together and in order: only the last one can be the same.
    if (!translated.empty() && translated.back().piece == piece) {
      translated.back().writes |= writes;
    } else {
      translated.push_back({piece, pages, writes});
    }
  };
  for (const RangeUse& use : uses) {
    auto pieces = cut_.find(use.storage);
    if (pieces == cut_.end() && is_large(use.pages) && !use.is_whole()) {
      cut(use.storage, use.pages);
      ended.push_back(whole(use.storage));
      pieces = cut_.find(use.storage);
    }
    if (pieces == cut_.end()) {
      add(whole(use.storage), use.pages, use.writes);
      continue;
    }
    const std::uint32_t last = (use.first + use.touched() - 1) / piece_pages_;
    for (std::uint32_t i = use.first / piece_pages_; i <= last; ++i) {
      const PieceId piece = pieces->second[i];
      add(piece, part_of(piece).count, use.writes);
    }
  }
}

void StoragePieces::freed(StorageId storage, std::vector<PieceId>& ended) {
  const auto pieces = cut_.find(storage);
  if (pieces == cut_.end()) {
    ended.push_back(whole(storage));
    return;
  }
  for (const PieceId piece : pieces->second) {
    ended.push_back(piece);
    free_pieces_.push_back(piece);
  }
  cut_.erase(pieces);
}

}  // namespace spillway::runtime
