#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "spillway/base/autograd_facts.h"
#include "spillway/base/bytes.h"
#include "spillway/pipeline/ownership/directory.h"
#include "spillway/pipeline/ownership/model_units.h"
#include "spillway/pipeline/ownership/placement.h"
#include "spillway/pipeline/ownership/stage_cuts.h"

namespace spillway::pipeline {

/// What an operator needs to be computed.
enum class OperatorKind : std::uint8_t {
  kComputes,  ///< Bytes of its inputs; where it is computed makes no difference to the program.
  kNoBytes,   ///< None: it makes views, or memory that nobody has filled.
  kSteers,    ///< The program sees what it returns: numbers, or sizes that hang on bytes.
};

struct OperatorUse {
  StorageOrdinal storage;
  bool writes = false;
  bool requires_gradient = false;  ///< Its tensor does: a parameter, or what was made of one.
  Bytes size{};                    ///< Of the storage.
  bool is_declared = false;        ///< Of forward: a leaf that a module has as its parameter.
};

/// An outermost operator, as every rank sees it.
struct OperatorCall {
  OperatorKind kind = OperatorKind::kComputes;
  AutogradFacts autograd{};
  /// Backward adds to the gradient of this parameter; none: it does something else.
  StorageOrdinal accumulates_for{};
  bool replicates = false;  ///< All ranks are to keep its parameters.
  std::span<const OperatorUse> uses;
};

/// A storage that an operator has made.
struct MadeStorage {
  StorageOrdinal storage;
  Bytes size{};
};

/// Bytes that one rank sends to another one before an operator. Both number it alike.
struct Move {
  std::uint64_t number = 0;
  StorageOrdinal storage;
  Rank from;
  Rank to;
};

struct Decision {
  /// A leaf that forward uses for the first time: a parameter has got its stage.
  struct Dealt {
    StorageOrdinal parameter;
    RankSet holders;            ///< Before anything moves.
    bool is_free_leaf = false;  ///< The program may go on to write it past operators.
  };
  RankSet owners;  ///< Who computes.
  /// The latest parameter that goes into it, by number, and the stage of that; none: it belongs to
  /// no part of the model.
  std::optional<std::uint32_t> unit;
  std::optional<std::uint32_t> stage;
  /// Forward of an earlier micro-batch of the step.
  struct EarlierForward {
    std::uint64_t micro_batch = 0;  ///< Counted from 0 in the step.
    std::uint32_t stage = 0;
  };
  /// Forward or backward of a micro-batch reads or changes what was made there: running statistics,
  /// sums of losses, a state that is carried on.
  std::vector<EarlierForward> follows_forward;
  /// The same, of anything else that an earlier micro-batch of the step has made or reads.
  bool follows_other = false;
  /// Forward that reads what backward of its step has made: schedules put it before that.
  bool follows_backward = false;
  /// All ranks compute it because it writes parameters that all of them keep. The program need not
  /// see its results.
  bool updates_replicated = false;
  std::vector<Dealt> dealt;
  std::vector<Move> moves;
};

/// Says who computes each operator of a program that all ranks run. The answer hangs on nothing but
/// the operators before, so each rank finds it for itself. The rules are in
/// pipeline/ownership/README.md. One thread.
class Ownership {
 public:
  /// Throws PlanError for cuts into another number of stages.
  Ownership(Placement placement, StageCuts cuts);

  /// The answer for the next operator; what moves is taken as moved. Until the next call.
  const Decision& decide(const OperatorCall& call);
  /// What that operator has made.
  void made(std::span<const MadeStorage> results);
  void ended(StorageOrdinal storage);
  /// The program has its bytes past the operators, on all ranks: all compute what writes it. For a
  /// storage that all hold.
  void keep_everywhere(StorageOrdinal storage);
  /// One rank alone has the bytes of a storage that no operator has made.
  void found_on(Rank rank, StorageOrdinal storage);

  /// With cuts by begins: forward comes to the next stage.
  void begin_stage() { cuts_.begin_stage(); }
  /// Cuts the model anew, between two steps: number of the unit that each stage begins with. What
  /// belongs to a unit of another stage then is kept there from its next use on. Throws PlanError
  /// for another number of stages, or numbers that StageCuts refuses.
  void recut(const std::vector<std::size_t>& first_of_stage);
  /// The present ones.
  std::vector<std::size_t> first_of_stage() const;
  std::uint32_t stage_of(std::uint32_t unit) const { return stage_of_[unit]; }

  /// Counts models: what was measured by the units of another one says nothing of this one's.
  std::uint64_t model() const { return model_; }

  /// An update has begun that no forward has followed.
  bool has_updated() const { return progress_ == Progress::kUpdated; }
  /// Before `decide`: whether this operator is the first one of a step. Where the program has
  /// replaced its parameters (`p.data = …`), nobody has seen the update.
  bool begins_step(const OperatorCall& call) const;
  /// The same: whether it uses a parameter, or what becomes one with it.
  bool has_parameter(const OperatorCall& call) const;
  /// The program begins the next micro-batch. From the first call on, only calls do.
  void begin_micro_batch();
  /// Counted from 0 in each step; a forward that reads a parameter after a backward begins the next
  /// one, and one after an update begins a step.
  std::uint64_t micro_batch() const { return micro_batch_; }
  /// The same, counted through the whole run.
  std::uint64_t micro_batch_of_run() const { return micro_batch_of_run_; }
  /// Parameters whose home is that rank: the most bytes at once.
  Bytes most_parameters_of(Rank rank) const;
  const Directory& directory() const { return directory_; }
  const ModelUnits& units() const { return units_; }
  const Placement& placement() const { return placement_; }

 private:
  enum class Progress : std::uint8_t { kForward, kBackward, kUpdated };
  enum class LeafKind : std::uint8_t {
    kNone,  ///< Needs no gradient, was made by forward, or has a unit and follows no parameter.
    kParameter,
    kReplacement,   ///< The program has put it in the place of a parameter.
    kNewParameter,  ///< That forward has not used.
    kFree,          ///< No parameter: data that require a gradient.
  };
  /// Whether an operator of forward uses some of each.
  struct ForwardUses {
    bool parameter = false, free_leaf = false;
    bool fresh_leaf = false;  ///< New, and first written since the latest backward began.
    bool unit = false;
    bool older_unit = false;  ///< Dealt before that backward.
  };
  struct Place {
    std::uint32_t unit = 0;
    Rank rank;
  };
  struct NodeHash {
    std::size_t operator()(const AutogradNode& node) const noexcept;
  };

  std::optional<Place> place_of(const OperatorCall& call);
  std::optional<Place> place_in_forward(const OperatorCall& call);
  void note_reads(const OperatorCall& call, std::uint32_t unit);
  std::optional<Place> place_in_backward(const OperatorCall& call) const;
  std::optional<Place> place_by_uses(const OperatorCall& call) const;
  Place place_of_storage(const StorageFacts& facts) const;
  void note_node(const AutogradNode& node, const Place& place);
  const Place* place_of_node(const AutogradNode& node) const;
  std::uint64_t first_write_of(StorageOrdinal storage) const;
  void note_leaves(const OperatorCall& call);
  void take_leaves(const OperatorCall& call);
  void take_free_leaf(StorageOrdinal storage);
  void deal(const OperatorUse& parameter, bool is_joined, bool replicates);
  void replace(const OperatorUse& parameter, bool replicates);
  void begin_anew();
  void review_model();
  void cut_anew(StageCuts cuts);
  void leave_model(StorageOrdinal storage, StorageFacts& facts);
  void keep(const StorageFacts& parameter, bool begins);
  void replicate(StorageFacts& parameter);
  Rank moved(Rank rank, std::uint32_t from_stage, std::uint32_t to_stage) const;
  LeafKind leaf_kind(const OperatorUse& use) const;
  static bool is_new(LeafKind kind);
  static bool is_of_parameter(LeafKind kind);
  ForwardUses forward_uses(const OperatorCall& call) const;
  bool writes_parameter(const OperatorCall& call) const;
  void count_micro_batches(const OperatorCall& call);
  void count_forward(const OperatorCall& call);
  void begin_forward();
  void begin_backward();
  void follow_micro_batches(const OperatorCall& call);
  void move_inputs(const OperatorCall& call);
  void note_writes(const OperatorCall& call);

  Placement placement_;
  StageCuts cuts_;
  Directory directory_;
  using Nodes = std::unordered_map<AutogradNode, Place, NodeHash>;
  Nodes nodes_, older_nodes_;  ///< Of forward operators.
  ModelUnits units_;
  std::uint64_t model_ = 0;
  bool is_first_step_ = true;            ///< Of the model.
  std::vector<std::uint32_t> stage_of_;  ///< By unit.
  struct Kept {
    Bytes now, most;
  };
  std::vector<Kept> kept_;  ///< Parameters by rank.
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  /// What the program has done outside of autograd with a storage that has no unit.
  struct Unplaced {
    std::uint64_t first_write = kNever;  ///< In `backwards_`.
    std::uint64_t latest_use = kNever;   ///< The same: by forward, as a free leaf.
  };
  std::unordered_map<StorageOrdinal, Unplaced> unplaced_;  ///< Leaves, and what it has written.
  /// What has happened since the latest backward began. It hangs on no end of a storage: ranks see
  /// those at different times.
  struct SinceBackward {
    std::size_t written = 0;  ///< Leaves without a unit that the program has written first since.
    Bytes size{};             ///< Of leaves that it has used outside of autograd first since.
    /// By forward, of what may belong to another model: new parameters that were not written before
    /// this model began, and free leaves that were written.
    std::size_t used = 0;
    std::uint32_t units = 0;  ///< That there were when it began.
    bool uses_model = false;  ///< Forward has used what has one of these units.
  };
  SinceBackward since_;
  std::uint64_t backwards_ = 0;        ///< That have begun, in a row counted once.
  std::uint64_t model_backwards_ = 0;  ///< Before the model.
  std::uint64_t micro_batch_ = 0, micro_batch_of_run_ = 0, moves_ = 0;
  Progress progress_ = Progress::kForward;
  bool is_told_of_micro_batches_ = false;
  bool is_behind_backward_ = false;       ///< No forward has used a parameter since.
  bool updates_behind_backward_ = false;  ///< The program has done so, with this model.
  bool is_updated_in_backward_ = false;   ///< In the latest one, where it has not.
  Decision decision_;
  std::optional<Place> place_;               ///< Of the latest operator; none: all compute it.
  std::uint64_t first_of_step_ = 1;          ///< Its first micro-batch, counted as StorageFacts do.
  std::uint64_t made_of_ = 0;                ///< What it makes or changes.
  std::optional<std::uint32_t> forward_of_;  ///< The same.
  bool is_gradient_ = false;                 ///< What it makes.
  bool is_forward_ = false, needs_gradient_ = false;
  bool uses_parameter_ = false;  ///< Or what follows one.
};

}  // namespace spillway::pipeline
