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
    : placement_(std::move(placement)),
      first_cuts_(std::move(cuts)),
      cuts_(first_cuts_),
      kept_(placement_.ranks()) {
  if (cuts_.stages() != placement_.stages())
    throw PlanError("parameters are dealt to {} stages, and {} are placed on ranks", cuts_.stages(),
                    placement_.stages());
}

const Decision& Ownership::decide(const OperatorCall& call) {
  decision_ = {};
  place_.reset();
  is_gradient_ = call.autograd.phase == OpPhase::kBackward;
  is_forward_ = call.autograd.phase == OpPhase::kForward;
  if (call.kind != OperatorKind::kNoBytes) {
    count_micro_batches(call);
    if (call.autograd.phase == OpPhase::kForward) {
      deal_parameters(call);
    } else {
      await_parameters(call);
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

/// A step ends with the first write to a parameter outside of autograd.
void Ownership::count_micro_batches(const OperatorCall& call) {
  const auto of_parameter = [&](const OperatorUse& use) { return is_parameter(use); };
  const auto writes_parameter = [&](const OperatorUse& use) {
    return use.writes && is_parameter(use);
  };
  switch (call.autograd.phase) {
    case OpPhase::kBackward:
      progress_ = Progress::kBackward;
      if (units_.is_counting() && units_.count() > 0) units_.end_count(directory_);
      return;
    case OpPhase::kForward: {
      if (std::none_of(call.uses.begin(), call.uses.end(), of_parameter)) return;
      if (!is_told_of_micro_batches_ || progress_ == Progress::kUpdated) begin_forward();
      progress_ = Progress::kForward;
      return;
    }
    case OpPhase::kUnknown: return;  // The program looks at bytes.
    case OpPhase::kOther:
      if (progress_ == Progress::kBackward &&
          std::any_of(call.uses.begin(), call.uses.end(), writes_parameter))
        progress_ = Progress::kUpdated;
  }
}

void Ownership::begin_forward() {
  if (progress_ == Progress::kBackward) ++micro_batch_;
  if (progress_ != Progress::kForward) ++micro_batch_of_run_;
  if (progress_ == Progress::kUpdated) {
    micro_batch_ = 0;
    first_of_step_ = micro_batch_of_run_ + 1;
    nodes_.clear();
  }
}

void Ownership::begin_micro_batch() {
  is_told_of_micro_batches_ = true;
  // A step begins with its first micro-batch, and the run as well.
  if (progress_ == Progress::kForward && units_.count() > 0) progress_ = Progress::kBackward;
  begin_forward();
  progress_ = Progress::kForward;
}

/// What was made of parameters belongs to a unit from the start.
bool Ownership::is_parameter(const OperatorUse& use) const {
  const StorageFacts& facts = directory_.at(use.storage);
  return facts.is_parameter || (use.requires_gradient && !facts.unit);
}

void Ownership::await_parameters(const OperatorCall& call) {
  if (units_.count() > 0 && !units_.have_all_ended()) return;
  for (const OperatorUse& use : call.uses)
    if (use.requires_gradient) awaited_[use.storage] = use.size;
}

/// Parameters get their stages in the order in which forward first uses them. Those of one stage
/// are kept on all ranks that compute it, by turns: each has about as many.
void Ownership::deal_parameters(const OperatorCall& call) {
  bool is_first = true;
  for (const OperatorUse& use : call.uses) {
    if (!use.requires_gradient) continue;
    if (directory_.at(use.storage).unit) {
      const bool is_new = directory_.at(use.storage).is_parameter && call.replicates;
      if (is_new) replicate(directory_.change(use.storage));
      continue;
    }
    if (units_.have_all_ended()) begin_anew();
    if (units_.count() == 0) {
      Bytes all;
      for (const auto& [storage, size] : std::exchange(awaited_, {})) all += size;
      cuts_.expect(all);
    }
    StorageFacts& facts = directory_.change(use.storage);
    facts.is_parameter = true;
    facts.size = use.size;
    facts.unit = units_.count();
    stage_of_.push_back(cuts_.next(use.size));
    facts.home = placement_.rank_of(stage_of_.back(), *facts.unit % placement_.turns());
    units_.add(use.size, !std::exchange(is_first, false));
    facts.is_replicated = call.replicates;
    // Where it is not, its first use there brings it.
    if (!facts.is_everywhere && !facts.is_replicated && facts.holders.contains(facts.home))
      facts.holders = RankSet::one(facts.home);
    keep(facts, /*begins=*/true);
    decision_.dealt.push_back({use.storage, facts.holders});
  }
}

/// For another model. What is left of the one before belongs to no part of it.
void Ownership::begin_anew() {
  units_ = {};
  stage_of_.clear();
  cuts_ = first_cuts_;
  nodes_.clear();
  for (auto& [storage, facts] : directory_) {
    facts.unit.reset();
    facts.home = {};
  }
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
  const std::vector<std::uint32_t> before = std::exchange(stage_of_, {});
  for (std::uint32_t unit = 0; unit < units_.count(); ++unit)
    stage_of_.push_back(cuts.next(Bytes()));
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
  if (call.autograd.made.is_some()) nodes_[call.autograd.made] = place;
  return place;
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
  const auto node = nodes_.find(call.autograd.runs_in);
  if (node != nodes_.end()) return node->second;
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
    if (directory_.at(use.storage).holders.is_all()) continue;
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
    // What forward writes that was not made there outlives it: running statistics.
    if (!facts.unit && call.autograd.phase == OpPhase::kForward) {
      facts.home = place_->rank;
      facts.size = use.size;
    }
    if (!facts.unit || !facts.home.is_some()) facts.unit = place_->unit;
  }
}

Bytes Ownership::most_parameters_of(Rank rank) const { return kept_[rank.value()].most; }

void Ownership::ended(StorageOrdinal storage) {
  const StorageFacts& facts = directory_.at(storage);
  if (facts.is_parameter) keep(facts, /*begins=*/false);
  units_.note_ended(storage, facts.is_parameter ? facts.unit : std::nullopt);
  directory_.forget(storage);
  awaited_.erase(storage);
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
    if (!place_) {
      directory_.forget(result.storage);
      continue;
    }
    StorageFacts& facts = directory_.change(result.storage);
    facts = {};
    facts.holders = decision_.owners;
    facts.unit = place_->unit;
    facts.computed_by = place_->rank;
    facts.is_gradient = is_gradient_;
    facts.is_of_forward = is_forward_;
    facts.size = result.size;
    facts.made_of = made_of_;
    facts.forward_of = forward_of_;
  }
}

}  // namespace spillway::pipeline
