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

RangePart StoragePieces::part_of(RangeId id) const {
  return is_whole(id) ? RangePart(RangeId(id.value() / 2)) : pieces_[id.value() / 2];
}

void StoragePieces::cut(RangeId range, std::uint32_t pages) {
  std::vector<std::uint32_t>& pieces = cut_[range];
  for (std::uint32_t first = 0; first < pages; first += piece_pages_) {
    const RangePart piece(range, first, std::min(piece_pages_, pages - first));
    if (free_pieces_.empty()) {
      pieces.push_back(static_cast<std::uint32_t>(pieces_.size()));
      pieces_.push_back(piece);
    } else {
      pieces.push_back(free_pieces_.back());
      pieces_[pieces.back()] = piece;
      free_pieces_.pop_back();
    }
  }
}

void StoragePieces::translate(std::span<const RangeUse> uses, std::vector<RangeUse>& translated,
                              std::vector<RangeId>& ended) {
  translated.clear();
  const auto add = [&](RangeId id, std::uint32_t pages, bool writes) {
    // Uses of one storage stand together and in order: only the last one can be the same.
    if (!translated.empty() && translated.back().range == id) {
      translated.back().writes |= writes;
    } else {
      translated.push_back({id, pages, writes});
    }
  };
  for (const RangeUse& use : uses) {
    auto pieces = cut_.find(use.range);
    if (pieces == cut_.end() && is_large(use.pages) && !use.is_whole()) {
      cut(use.range, use.pages);
      ended.push_back(whole(use.range));
      pieces = cut_.find(use.range);
    }
    if (pieces == cut_.end()) {
      add(whole(use.range), use.pages, use.writes);
      continue;
    }
    const std::uint32_t last = (use.first + use.touched() - 1) / piece_pages_;
    for (std::uint32_t i = use.first / piece_pages_; i <= last; ++i) {
      const std::uint32_t piece = pieces->second[i];
      add(RangeId(2 * piece + 1), pieces_[piece].count, use.writes);
    }
  }
}

void StoragePieces::freed(RangeId range, std::vector<RangeId>& ended) {
  const auto pieces = cut_.find(range);
  if (pieces == cut_.end()) {
    ended.push_back(whole(range));
    return;
  }
  for (const std::uint32_t piece : pieces->second) {
    ended.push_back(RangeId(2 * piece + 1));
    free_pieces_.push_back(piece);
  }
  cut_.erase(pieces);
}

}  // namespace spillway::runtime
