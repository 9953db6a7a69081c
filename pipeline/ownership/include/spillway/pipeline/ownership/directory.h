#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "spillway/base/bytes.h"
#include "spillway/base/rank.h"
#include "spillway/base/strong_id.h"
#include "spillway/pipeline/ownership/rank_set.h"

namespace spillway::pipeline {

/// A storage by the order in which the program made it, which is the same on all ranks, as its
/// address is not.
using StorageOrdinal = StrongId<struct StorageOrdinalTag, std::uint64_t>;

/// What all ranks know of a storage.
struct StorageFacts {
  RankSet holders = RankSet::all();  ///< Who has its current bytes.
  /// The latest parameter that has gone into it, by number (model_units.h); none: it belongs to no
  /// part of the model.
  std::optional<std::uint32_t> unit;
  Rank home;                   ///< Where a parameter, a buffer or a state is kept; none: nowhere.
  Rank computed_by;            ///< Who has written it last; none: all, or the program itself.
  bool is_gradient = false;    ///< Backward has made it.
  bool is_of_forward = false;  ///< Forward has.
  bool is_parameter = false;
  bool follows_parameter = false;  ///< Made of one outside of autograd: it may take its place.
  bool is_free_leaf = false;       ///< A leaf that is no parameter, as far as is known.
  Bytes size;                      ///< Of what operators of the model have made, and of parameters.
  bool is_everywhere = false;      ///< All ranks hold it for good.
  bool is_replicated = false;      ///< A parameter that all ranks update, so that none gets it.
  /// The earliest micro-batches of their step that have gone into it, and that have read it since;
  /// counted through the run from 1, 0: none.
  std::uint64_t made_of = 0, read_for = 0;
  /// The stage of the forward that has made or changed it last, of nothing of its step but what
  /// forward has made; none: something else has.
  std::optional<std::uint32_t> forward_of;
};

/// Who has what, kept by each rank for itself and equal on all. One thread.
class Directory {
 public:
  /// What is unknown was made by the program itself, everywhere.
  const StorageFacts& at(StorageOrdinal storage) const;
  StorageFacts& change(StorageOrdinal storage) { return all_[storage]; }
  void forget(StorageOrdinal storage) { all_.erase(storage); }
  std::size_t size() const { return all_.size(); }
  auto begin() const { return all_.begin(); }  ///< In no order.
  auto end() const { return all_.end(); }
  auto begin() { return all_.begin(); }
  auto end() { return all_.end(); }

 private:
  std::unordered_map<StorageOrdinal, StorageFacts> all_;
};

}  // namespace spillway::pipeline
