#include "spillway/pipeline/ownership/ownership.h"

#include <algorithm>
#include <utility>

#include "spillway/base/assert.h"
#include "spillway/base/error.h"

namespace spillway::pipeline {

std::size_t Ownership::NodeHash::operator()(const AutogradNode& node) const noexcept {
  return std::hash<std::uint64_t>()(node.number * 0x9E3779B97F4A7C15ull + node.thread);
}

Ownership::Ownership(Placement placement, StageCuts cuts)
    : placement_(std::move(placement)), cuts_(std::move(cuts)), kept_(placement_.ranks()) {
  if (cuts_.stages() != placement_.stages())
    throw PlanError("parameters are dealt to {} stages, and {} are placed on ranks", cuts_.stages(),
                    placement_.stages());
}

const Decision& Ownership::decide(const OperatorCall& call) {
  decision_ = {};
  place_.reset();
  is_gradient_ = call.autograd.phase == OpPhase::kBackward;
  is_forward_ = call.autograd.phase == OpPhase::kForward;
  needs_gradient_ = uses_parameter_ = false;
  if (call.kind != OperatorKind::kNoBytes) {
    count_micro_batches(call);
    if (is_forward_) {
      take_leaves(call);
    } else if (!is_gradient_) {
      note_leaves(call);
    }
    // What steers the program has a place too, for what follows from it.
    place_ = place_of(call);
  }
  bool writes_everywhere = false, writes_replicated = false;
  for (const OperatorUse& use : call.uses) {
    if (!use.writes) continue;
    const StorageFacts& facts = directory_.at(use.storage);
    writes_everywhere |= facts.is_everywhere;
    writes_replicated |= facts.is_replicated;
  }
  const bool may_split = place_ && call.kind == OperatorKind::kComputes && !writes_everywhere;
  decision_.updates_replicated = may_split && writes_replicated;
  decision_.owners = may_split && !writes_replicated ? RankSet::one(place_->rank) : RankSet::all();
  if (place_) {
    decision_.unit = place_->unit;
    decision_.stage = stage_of_[place_->unit];
  }
  if (call.kind == OperatorKind::kNoBytes) return decision_;
  follow_micro_batches(call);
  move_inputs(call);
  note_writes(call);
  return decision_;
}

/// Sums of gradients, updates and what the program itself computes wait for what they need, and
/// carry on what has gone into it. What a micro-batch makes is of that one: it comes behind what
/// its maker came behind.
void Ownership::follow_micro_batches(const OperatorCall& call) {
  made_of_ = 0;
  forward_of_.reset();
  if (!place_) return;
  if (is_forward_) forward_of_ = decision_.stage;
  const std::uint64_t now = micro_batch_of_run_ + 1;
  const bool is_of_one = is_forward_ || (is_gradient_ && !call.accumulates_for.is_some());
  if (is_of_one) made_of_ = now;
  const auto hangs_on = [&](std::uint64_t micro_batch, std::optional<std::uint32_t> forward_of) {
    if (micro_batch < first_of_step_) return;  // Of an earlier step, or none.
    if (!is_of_one) {
      if (made_of_ == 0 || micro_batch < made_of_) made_of_ = micro_batch;
    } else if (micro_batch < now && forward_of) {
      decision_.follows_forward.push_back({micro_batch_ - (now - micro_batch), *forward_of});
    } else {
      decision_.follows_other |= micro_batch < now;
    }
  };
  for (const OperatorUse& use : call.uses) {
    const StorageFacts& facts = directory_.at(use.storage);
    hangs_on(facts.made_of, facts.forward_of);
    // Behind backward, perhaps, as inputs that were moved along their gradients.
    if (facts.made_of >= first_of_step_ && !facts.forward_of) forward_of_.reset();
    decision_.follows_backward |=
        is_forward_ && facts.is_gradient && facts.made_of >= first_of_step_;
    if (use.writes) hangs_on(facts.read_for, {});
  }
  for (const OperatorUse& use : call.uses) {
    const StorageFacts& facts = directory_.at(use.storage);
    if (!facts.unit || facts.is_parameter || use.writes || facts.read_for >= first_of_step_)
      continue;
    directory_.change(use.storage).read_for = is_of_one ? now : made_of_;
  }
}

bool Ownership::writes_parameter(const OperatorCall& call) const {
  return std::any_of(call.uses.begin(), call.uses.end(), [&](const OperatorUse& use) {
    return use.writes && is_of_parameter(leaf_kind(use));
  });
}

/// A step ends with the first write to a parameter outside of autograd; where the program has made
/// none yet, with a backward in which one was written, as hooks do that update.
void Ownership::count_micro_batches(const OperatorCall& call) {
  switch (call.autograd.phase) {
    case OpPhase::kBackward:
      if (std::exchange(progress_, Progress::kBackward) != Progress::kBackward) begin_backward();
      if (units_.is_counting() && units_.count() > 0) units_.end_count(directory_);
      is_updated_in_backward_ |= !updates_behind_backward_ && writes_parameter(call);
      return;
    case OpPhase::kForward: count_forward(call); return;
    case OpPhase::kUnknown: return;  // The program looks at bytes.
    case OpPhase::kOther:
      if (progress_ != Progress::kBackward || !writes_parameter(call)) return;
      progress_ = Progress::kUpdated;
      updates_behind_backward_ = true;
      is_updated_in_backward_ = false;
  }
}

void Ownership::begin_backward() {
  is_behind_backward_ = true;
  ++backwards_;
  const SinceBackward before = std::exchange(since_, {.units = units_.count()});
  if (units_.is_counting() || before.uses_model || before.used < placement_.stages()) return;
  for (std::uint32_t unit = before.units; unit < units_.count(); ++unit)
    since_.size += units_.parameter_of(unit);
  begin_anew();
}

Ownership::ForwardUses Ownership::forward_uses(const OperatorCall& call) const {
  ForwardUses found;
  for (const OperatorUse& use : call.uses) {
    const LeafKind kind = leaf_kind(use);
    const std::optional<std::uint32_t> unit = directory_.at(use.storage).unit;
    found.parameter |= is_of_parameter(kind);
    found.free_leaf |= kind == LeafKind::kFree;
    found.unit |= unit.has_value();
    found.older_unit |= unit && *unit < since_.units;
    found.fresh_leaf |=
        is_new(kind) && !units_.is_counting() && first_write_of(use.storage) == backwards_;
  }
  return found;
}

/// The table "What begins" in README.md.
void Ownership::count_forward(const OperatorCall& call) {
  const ForwardUses uses = forward_uses(call);
  since_.uses_model |= uses.older_unit;
  if (!uses.parameter && !uses.free_leaf) return;
  const bool is_first_of_step = begins_step(call);
  const bool begins_model = uses.fresh_leaf && !uses.unit &&
                            since_.written >= std::max(placement_.stages(), units_.count() / 2);
  if (is_first_of_step) {
    progress_ = Progress::kUpdated;
    is_updated_in_backward_ = false;
  }
  if (uses.parameter || begins_model) is_behind_backward_ = false;
  if (uses.parameter || begins_model || is_first_of_step) {
    if (!is_told_of_micro_batches_ || is_first_of_step) begin_forward();
    progress_ = Progress::kForward;
  }
  if (begins_model) begin_anew();
}

bool Ownership::begins_step(const OperatorCall& call) const {
  if (call.autograd.phase != OpPhase::kForward || call.kind == OperatorKind::kNoBytes) return false;
  const bool has_updated = progress_ == Progress::kUpdated || is_updated_in_backward_;
  if (!has_updated && !is_behind_backward_) return false;
  return std::any_of(call.uses.begin(), call.uses.end(), [&](const OperatorUse& use) {
    const LeafKind kind = leaf_kind(use);
    return kind == LeafKind::kReplacement || (has_updated && kind != LeafKind::kNone);
  });
}

bool Ownership::has_parameter(const OperatorCall& call) const {
  return std::any_of(call.uses.begin(), call.uses.end(),
                     [&](const OperatorUse& use) { return is_of_parameter(leaf_kind(use)); });
}

void Ownership::begin_forward() {
  if (progress_ == Progress::kBackward) ++micro_batch_;
  if (progress_ != Progress::kForward) ++micro_batch_of_run_;
  if (progress_ != Progress::kUpdated) return;
  micro_batch_ = 0;
  first_of_step_ = micro_batch_of_run_ + 1;
  nodes_.clear();
  older_nodes_.clear();
  review_model();
}

void Ownership::begin_micro_batch() {
  is_told_of_micro_batches_ = true;
  // A step begins with its first micro-batch, and the run as well.
  if (progress_ == Progress::kForward && units_.count() > 0) progress_ = Progress::kBackward;
  begin_forward();
  progress_ = Progress::kForward;
}

/// Behind the first backward of a model, what is no module's and was not initialised before that is
/// no parameter.
Ownership::LeafKind Ownership::leaf_kind(const OperatorUse& use) const {
  const StorageFacts& facts = directory_.at(use.storage);
  if (facts.is_parameter) return LeafKind::kParameter;
  if (!use.requires_gradient || facts.is_of_forward) return LeafKind::kNone;
  if (facts.unit) return facts.follows_parameter ? LeafKind::kReplacement : LeafKind::kNone;
  if (use.is_declared) return LeafKind::kNewParameter;
  if (facts.is_free_leaf) return LeafKind::kFree;
  const bool is_parameter = units_.is_counting() || first_write_of(use.storage) <= model_backwards_;
  return is_parameter ? LeafKind::kNewParameter : LeafKind::kFree;
}

bool Ownership::is_new(LeafKind kind) {
  return kind == LeafKind::kNewParameter || kind == LeafKind::kFree;
}

bool Ownership::is_of_parameter(LeafKind kind) {
  return kind != LeafKind::kNone && kind != LeafKind::kFree;
}

std::uint64_t Ownership::first_write_of(StorageOrdinal storage) const {
  const auto found = unplaced_.find(storage);
  return found == unplaced_.end() ? kNever : found->second.first_write;
}

/// Initialisers may write a parameter through what does not require gradients (`.data`).
void Ownership::note_leaves(const OperatorCall& call) {
  for (const OperatorUse& use : call.uses) {
    const bool is_new_leaf = is_new(leaf_kind(use));
    if (!is_new_leaf && (!use.writes || directory_.at(use.storage).unit)) continue;
    const auto [found, is_new] = unplaced_.try_emplace(use.storage);
    if (is_new && is_new_leaf) since_.size += use.size;
    if (!use.writes || found->second.first_write != kNever) continue;
    found->second.first_write = backwards_;
    if (is_new_leaf) ++since_.written;
  }
}

/// Parameters get their stages in the order in which forward first uses them.
void Ownership::take_leaves(const OperatorCall& call) {
  bool is_first = true;
  for (const OperatorUse& use : call.uses) {
    if (!use.requires_gradient) continue;
    needs_gradient_ = true;
    const LeafKind kind = leaf_kind(use);
    if (kind == LeafKind::kParameter) {
      if (call.replicates) replicate(directory_.change(use.storage));
    } else if (kind == LeafKind::kReplacement) {
      replace(use, call.replicates);
    } else if (kind == LeafKind::kNewParameter) {
      deal(use, !std::exchange(is_first, false), call.replicates);
    } else if (kind == LeafKind::kFree) {
      take_free_leaf(use.storage);
    }
  }
}

void Ownership::take_free_leaf(StorageOrdinal storage) {
  StorageFacts& facts = directory_.change(storage);
  if (!std::exchange(facts.is_free_leaf, true))
    decision_.dealt.push_back({storage, facts.holders, true});
  const auto found = unplaced_.find(storage);
  if (found == unplaced_.end() || found->second.first_write == kNever) return;
  if (std::exchange(found->second.latest_use, backwards_) != backwards_) ++since_.used;
}

/// Those of one stage are kept on all ranks that compute it, by turns: each has about as many.
void Ownership::deal(const OperatorUse& parameter, bool is_joined, bool replicates) {
  if (units_.count() == 0) cuts_.expect(since_.size);
  StorageFacts& facts = directory_.change(parameter.storage);
  if (!units_.is_counting() && first_write_of(parameter.storage) > model_backwards_) ++since_.used;
  facts.is_parameter = true;
  facts.is_free_leaf = false;
  facts.size = parameter.size;
  facts.unit = units_.count();
  stage_of_.push_back(cuts_.next(parameter.size));
  facts.home = placement_.rank_of(stage_of_.back(), *facts.unit % placement_.turns());
  units_.add(parameter.size, is_joined);
  facts.is_replicated = replicates;
  // Where it is not, its first use there brings it.
  if (!facts.is_everywhere && !facts.is_replicated && facts.holders.contains(facts.home))
    facts.holders = RankSet::one(facts.home);
  keep(facts, /*begins=*/true);
  decision_.dealt.push_back({parameter.storage, facts.holders});
}

/// It is kept where the one before was, which has made it.
void Ownership::replace(const OperatorUse& parameter, bool replicates) {
  StorageFacts& facts = directory_.change(parameter.storage);
  facts.is_parameter = true;
  facts.size = parameter.size;
  facts.home = place_of_storage(facts).rank;
  facts.is_replicated = replicates;
  keep(facts, /*begins=*/true);
}

/// For another model. What is left of the one before belongs to no part of it; its parameters are
/// dealt again where forward uses them.
void Ownership::begin_anew() {
  model_backwards_ = backwards_;
  for (const auto& [storage, seen] : unplaced_)
    if (seen.first_write != kNever && directory_.at(storage).is_free_leaf)
      directory_.change(storage).is_free_leaf = false;
  for (auto& [storage, facts] : directory_) leave_model(storage, facts);
  units_ = {};
  stage_of_.clear();
  cuts_ = StageCuts::by_bytes(placement_.stages());
  nodes_.clear();
  older_nodes_.clear();
  ++model_;
  is_first_step_ = true;
  updates_behind_backward_ = false;
}

/// With each step. Before the first one of a model ends, what is to come is not known.
void Ownership::review_model() {
  units_.begin_step();
  if (units_.is_counting() || !std::exchange(is_first_step_, false) || !cuts_.has_expected_others())
    return;
  Bytes all;
  for (std::uint32_t unit = 0; unit < units_.count(); ++unit) all += units_.parameter_of(unit);
  StageCuts cuts = StageCuts::by_bytes(placement_.stages());
  cuts.expect(all);
  cut_anew(std::move(cuts));
}

void Ownership::leave_model(StorageOrdinal storage, StorageFacts& facts) {
  if (facts.is_parameter) {
    keep(facts, /*begins=*/false);
    unplaced_[storage].first_write = 0;
  }
  facts.is_parameter = facts.is_replicated = false;
  facts.unit.reset();
  facts.home = {};
}

void Ownership::keep(const StorageFacts& parameter, bool begins) {
  for (std::uint32_t rank = 0; rank < placement_.ranks(); ++rank) {
    if (!parameter.is_replicated && Rank(rank) != parameter.home) continue;
    Kept& kept = kept_[rank];
    kept.now = begins ? kept.now + parameter.size : kept.now - parameter.size;
    kept.most = std::max(kept.most, kept.now);
  }
}

/// One that another operator has used before: with its next update all ranks have it.
void Ownership::replicate(StorageFacts& parameter) {
  if (parameter.is_replicated) return;
  keep(parameter, /*begins=*/false);
  parameter.is_replicated = true;
  keep(parameter, /*begins=*/true);
}

void Ownership::recut(const std::vector<std::size_t>& first_of_stage) {
  StageCuts cuts(first_of_stage);
  if (cuts.stages() != placement_.stages())
    throw PlanError("a model of {} stages is cut into {}", placement_.stages(), cuts.stages());
  cut_anew(std::move(cuts));
}

void Ownership::cut_anew(StageCuts cuts) {
  const std::vector<std::uint32_t> before = std::exchange(stage_of_, {});
  for (std::uint32_t unit = 0; unit < units_.count(); ++unit)
    stage_of_.push_back(cuts.next(units_.parameter_of(unit)));
  cuts_ = std::move(cuts);
  for (auto& [storage, facts] : directory_) {
    if (!facts.unit) continue;
    const std::uint32_t from = before[*facts.unit], to = stage_of_[*facts.unit];
    if (from == to) continue;
    if (facts.is_parameter) keep(facts, /*begins=*/false);
    facts.home = moved(place_of_storage(facts).rank, from, to);
    if (facts.is_parameter) keep(facts, /*begins=*/true);
  }
}

/// The rank that stands to a stage as `rank` does to another one: what was on one rank stays so.
Rank Ownership::moved(Rank rank, std::uint32_t from_stage, std::uint32_t to_stage) const {
  for (std::uint32_t turn = 0; turn < placement_.turns(); ++turn)
    if (placement_.rank_of(from_stage, turn) == rank) return placement_.rank_of(to_stage, turn);
  return placement_.rank_of(to_stage, 0);
}

std::vector<std::size_t> Ownership::first_of_stage() const {
  std::vector<std::size_t> first;
  for (std::uint32_t stage = 0; stage < placement_.stages(); ++stage)
    first.push_back(static_cast<std::size_t>(
        std::lower_bound(stage_of_.begin(), stage_of_.end(), stage) - stage_of_.begin()));
  return first;
}

std::optional<Ownership::Place> Ownership::place_of(const OperatorCall& call) {
  switch (call.autograd.phase) {
    case OpPhase::kForward: return place_in_forward(call);
    case OpPhase::kBackward: return place_in_backward(call);
    case OpPhase::kUnknown:
    case OpPhase::kOther: break;
  }
  return place_by_uses(call);
}

std::optional<Ownership::Place> Ownership::place_in_forward(const OperatorCall& call) {
  std::optional<std::uint32_t> unit;
  for (const OperatorUse& use : call.uses) unit = std::max(unit, directory_.at(use.storage).unit);
  if (!unit) return std::nullopt;
  if (units_.is_counting()) note_reads(call, *unit);
  const Place place{*unit, placement_.rank_of(stage_of_[*unit], micro_batch_)};
  if (call.autograd.made.is_some()) note_node(call.autograd.made, place);
  return place;
}

/// Programs that only run forward make nodes for ever, and nobody tells when a graph ends.
void Ownership::note_node(const AutogradNode& node, const Place& place) {
  constexpr std::size_t kMost = std::size_t{1} << 18;
  if (nodes_.size() == kMost) older_nodes_ = std::exchange(nodes_, {});
  nodes_[node] = place;
}

const Ownership::Place* Ownership::place_of_node(const AutogradNode& node) const {
  for (const Nodes* nodes : {&nodes_, &older_nodes_}) {
    const auto found = nodes->find(node);
    if (found != nodes->end()) return &found->second;
  }
  return nullptr;
}

/// A parameter that was dealt before is a value like others: tied weights.
void Ownership::note_reads(const OperatorCall& call, std::uint32_t unit) {
  for (const OperatorUse& use : call.uses)
    if (const auto producer = directory_.at(use.storage).unit)
      units_.note_read(use.storage, *producer, unit, use.size);
}

std::optional<Ownership::Place> Ownership::place_in_backward(const OperatorCall& call) const {
  if (call.accumulates_for.is_some()) {
    const StorageFacts& parameter = directory_.at(call.accumulates_for);
    if (parameter.unit) return place_of_storage(parameter);
  }
  if (const Place* const place = place_of_node(call.autograd.runs_in)) return *place;
  // Autograd adds up what several nodes give to one: where that will be used, which is with the
  // earliest among them.
  std::optional<Place> earliest;
  for (const OperatorUse& use : call.uses) {
    const StorageFacts& facts = directory_.at(use.storage);
    if (!facts.is_gradient || !facts.unit) continue;
    if (!earliest || *facts.unit < earliest->unit) earliest = place_of_storage(facts);
  }
  return earliest ? earliest : place_by_uses(call);
}

/// Where what it writes is kept; else where the input of the latest unit is.
std::optional<Ownership::Place> Ownership::place_by_uses(const OperatorCall& call) const {
  std::optional<Place> latest;
  for (const OperatorUse& use : call.uses) {
    const StorageFacts& facts = directory_.at(use.storage);
    if (!facts.unit) continue;
    if (use.writes) return place_of_storage(facts);
    if (!latest || *facts.unit > latest->unit) latest = place_of_storage(facts);
  }
  return latest;
}

Ownership::Place Ownership::place_of_storage(const StorageFacts& facts) const {
  const Rank rank = facts.home.is_some() ? facts.home : facts.computed_by;
  SPILLWAY_ASSERT(facts.unit && rank.is_some());
  return {*facts.unit, rank};
}

void Ownership::move_inputs(const OperatorCall& call) {
  for (const OperatorUse& use : call.uses) {
    const StorageFacts& facts = directory_.at(use.storage);
    if (facts.is_parameter) units_.note_used(*facts.unit);
    uses_parameter_ |= facts.is_parameter || facts.follows_parameter;
    if (facts.holders.is_all()) continue;
    RankSet& holders = directory_.change(use.storage).holders;
    const Rank from = holders.first();
    for (const Rank to : decision_.owners.list(placement_.ranks()))
      if (!holders.contains(to)) decision_.moves.push_back({moves_++, use.storage, from, to});
    if (decision_.owners.is_all()) {
      holders = RankSet::all();
    } else {
      holders.insert(place_->rank);
    }
  }
}

void Ownership::note_writes(const OperatorCall& call) {
  for (const OperatorUse& use : call.uses) {
    if (!use.writes) continue;
    if (!place_ && !directory_.at(use.storage).unit) continue;  // Everywhere, as before.
    StorageFacts& facts = directory_.change(use.storage);
    facts.holders = decision_.owners;
    if (!place_) continue;
    facts.made_of = made_of_;
    facts.read_for = 0;
    facts.forward_of = forward_of_;
    facts.computed_by = place_->rank;
    facts.is_gradient |= is_gradient_;
    if (!facts.unit) facts.size = use.size;
    // What forward writes that was not made there outlives it: running statistics.
    if (!facts.unit && is_forward_) facts.home = place_->rank;
    if (!facts.unit || !facts.home.is_some()) facts.unit = place_->unit;
  }
}

Bytes Ownership::most_parameters_of(Rank rank) const { return kept_[rank.value()].most; }

void Ownership::ended(StorageOrdinal storage) {
  const StorageFacts& facts = directory_.at(storage);
  if (facts.is_parameter) keep(facts, /*begins=*/false);
  units_.note_ended(storage);
  directory_.forget(storage);
  unplaced_.erase(storage);
}

void Ownership::keep_everywhere(StorageOrdinal storage) {
  SPILLWAY_ASSERT(directory_.at(storage).holders.is_all());
  directory_.change(storage).is_everywhere = true;
}

void Ownership::found_on(Rank rank, StorageOrdinal storage) {
  directory_.change(storage).holders = RankSet::one(rank);
}

void Ownership::made(std::span<const MadeStorage> results) {
  for (const MadeStorage& result : results) {
    if (!place_ && !(is_forward_ && needs_gradient_)) {
      directory_.forget(result.storage);
      continue;
    }
    StorageFacts& facts = directory_.change(result.storage);
    facts = {};
    facts.is_of_forward = is_forward_;
    if (!place_) continue;  // Of free leaves.
    facts.holders = decision_.owners;
    facts.unit = place_->unit;
    facts.computed_by = place_->rank;
    facts.is_gradient = is_gradient_;
    facts.follows_parameter = uses_parameter_ && !is_forward_ && !is_gradient_;
    facts.size = result.size;
    facts.made_of = made_of_;
    facts.forward_of = forward_of_;
  }
}

}  // namespace spillway::pipeline
