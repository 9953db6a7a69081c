#include "random_trainer.h"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/base/mix.h"

namespace spillway::pipeline {

namespace {

OperatorUse reads(StorageOrdinal storage) { return {storage}; }
OperatorUse writes(StorageOrdinal storage) { return {storage, true}; }
OperatorUse reads_parameter(StorageOrdinal storage) { return {storage, false, true}; }
OperatorUse writes_parameter(StorageOrdinal storage) { return {storage, true, true}; }

}  // namespace

std::vector<MadeStorage> of_no_size(const std::vector<StorageOrdinal>& made) {
  return {made.begin(), made.end()};
}

std::uint64_t RankMemory::bytes_in(const Contents& contents, StorageOrdinal storage) {
  const auto found = contents.find(storage.value());
  if (found == contents.end() || !found->second)
    throw std::logic_error(message("storage {} is not here", storage));
  return *found->second;
}

void RankMemory::carry_out(const Move& move) {
  const transport::Tag tag{transport::Stream::kValues, move.number};
  std::uint64_t bytes = 0;
  const device::DeviceSpan span = device::host_span_of(bytes);
  if (move.from == transport_->rank()) {
    if (fault_ == Fault::kLosesAMessage && sent_++ == 2) return;
    bytes = bytes_of(move.storage);
    const device::Outcome outcome = transport_->send(move.to, tag, span).wait();
    if (!outcome.succeeded()) throw std::logic_error(outcome.error);
  } else if (move.to == transport_->rank()) {
    const device::Outcome outcome = transport_->receive(move.from, tag, span).wait();
    if (!outcome.succeeded()) throw std::logic_error(outcome.error);
    contents_[move.storage.value()] = bytes;
  }
}

std::vector<StorageOrdinal> RankMemory::run(const OperatorCall& call, std::size_t results) {
  bool computes = true;
  if (ownership_ != nullptr) {
    hear_of_ends();
    OperatorCall asked = call;
    asked.replicates = replicates_every_ > 0 && operators_ % replicates_every_ == 0;
    const Decision& decision = ownership_->decide(asked);
    for (const Decision::Dealt& dealt : decision.dealt)
      if (!dealt.holders.contains(transport_->rank())) contents_[dealt.parameter.value()].reset();
    for (const Move& move : decision.moves) carry_out(move);
    computes = decision.owners.contains(transport_->rank());
  }
  if (call.kind == OperatorKind::kNoBytes) return {};
  std::uint64_t hash = mix(17, operators_++);
  if (computes)
    for (const OperatorUse& use : call.uses) hash = mix(hash, bytes_of(use.storage));
  for (const OperatorUse& use : call.uses) {
    if (!use.writes) continue;
    hash = mix(hash, 1);
    if (computes) contents_[use.storage.value()] = hash;
    if (!computes && fault_ != Fault::kKeepsWhatOthersWrite) contents_[use.storage.value()].reset();
  }
  std::vector<StorageOrdinal> made;
  for (std::size_t i = 0; i < results; ++i) {
    hash = mix(hash, 2);
    made.emplace_back(next_++);
    auto& bytes = contents_[made.back().value()];
    if (computes) bytes = hash;
  }
  if (ownership_ != nullptr) ownership_->made(of_no_size(made));
  return made;
}

std::uint64_t RankMemory::ask(StorageOrdinal of) {
  const OperatorUse use = reads(of);
  run({.kind = OperatorKind::kSteers, .autograd = {.phase = OpPhase::kOther}, .uses = {&use, 1}},
      0);
  return bytes_of(of);
}

void RankMemory::end(StorageOrdinal storage) {
  contents_.erase(storage.value());
  if (ownership_ != nullptr) ended_.push_back(storage);
}

/// Of some of them, in another order on each rank.
void RankMemory::hear_of_ends() {
  if (ends_() % 4 != 0) return;
  std::shuffle(ended_.begin(), ended_.end(), ends_);
  for (std::size_t heard = ends_() % (ended_.size() + 1); heard > 0; --heard) {
    ownership_->ended(ended_.back());
    ended_.pop_back();
  }
}

namespace {

class RandomTrainer {
 public:
  RandomTrainer(std::uint64_t seed, Memory& memory) : draws_(seed), memory_(memory) {
    layers_.resize(2 + draw(7));
  }

  std::size_t parameters() const { return layers_.size(); }
  void run(const std::function<void()>& look) {
    for (std::uint64_t models = 1 + draw(3); models > 0; --models) {
      make_model();
      train(look);
      end_model();
      layers_.assign(2 + draw(7), {});
    }
  }

 private:
  void make_model() {
    const bool is_initialised = draw(4) > 0;
    for (Layer& layer : layers_) {
      layer.parameter = make({}, OpPhase::kOther);
      if (is_initialised) change({writes_parameter(layer.parameter)}, OpPhase::kOther);
      if (draw(3) == 0) layer.buffer = make({}, OpPhase::kOther);
    }
    is_tied_ = draw(3) == 0;
    data_are_leaves_ = draw(3) == 0;
    replaces_ = draw(4) == 0;
  }

  void train(const std::function<void()>& look) {
    const std::uint64_t micro_batches = 1 + draw(5);
    for (int step = 0; step < 3; ++step) {
      for (std::uint64_t i = 0; i < micro_batches; ++i) train_on_micro_batch();
      if (draw(2) == 0) clip();
      update();
      if (draw(3) == 0) evaluate();
      look();
    }
  }

  void end_model() {
    for (const Layer& layer : layers_)
      for (const StorageOrdinal storage :
           {layer.parameter, layer.gradient, layer.buffer, layer.state, layer.average})
        if (storage.is_some()) memory_.end(storage);
  }

  struct Layer {
    StorageOrdinal parameter{}, gradient{}, buffer{}, state{}, average{};
  };
  /// An operator of forward, for backward.
  struct Node {
    AutogradNode name;
    std::vector<StorageOrdinal> inputs;
    StorageOrdinal output{};
    Layer* layer = nullptr;
  };

  std::uint64_t draw(std::uint64_t below) { return draws_() % below; }

  StorageOrdinal make(const std::vector<OperatorUse>& uses, OpPhase phase) {
    return memory_.run({.autograd = {.phase = phase}, .uses = uses}, 1).front();
  }
  void change(const std::vector<OperatorUse>& uses, OpPhase phase) {
    memory_.run({.autograd = {.phase = phase}, .uses = uses}, 0);
  }

  void forward_layer(Layer& layer) {
    Node node{{1, ++nodes_made_}, {current_}, {}, &layer};
    const bool is_leaf = data_are_leaves_ && graph_.empty();
    std::vector<OperatorUse> uses{{current_, false, is_leaf}, reads_parameter(layer.parameter)};
    if (draw(3) == 0) {  // A skip.
      const StorageOrdinal earlier = graph_.empty() ? current_ : graph_[draw(graph_.size())].output;
      uses.push_back(reads(earlier));
      node.inputs.push_back(earlier);
    }
    if (draw(4) == 0) uses.push_back(reads(make({}, OpPhase::kForward)));  // A mask.
    if (layer.buffer.is_some()) uses.push_back(writes(layer.buffer));
    node.output =
        memory_.run({.autograd = {.phase = OpPhase::kForward, .made = node.name}, .uses = uses}, 1)
            .front();
    current_ = node.output;
    graph_.push_back(node);
    if (draw(4) == 0) change({writes(current_)}, OpPhase::kForward);
    if (draw(4) == 0) memory_.run({.kind = OperatorKind::kNoBytes, .uses = uses}, 0);  // A view.
  }

  void add_gradient(StorageOrdinal of, StorageOrdinal gradient) {
    const auto [at, is_first] = gradients_.emplace(of.value(), gradient);
    if (is_first) return;
    if (draw(2) == 0) {
      change({writes(at->second), reads(gradient)}, OpPhase::kBackward);
    } else {
      at->second = make({reads(at->second), reads(gradient)}, OpPhase::kBackward);
    }
  }

  void accumulate(Layer& layer, StorageOrdinal gradient) {
    if (!layer.gradient.is_some()) {
      layer.gradient = gradient;  // Autograd keeps the first one as it is.
      return;
    }
    const std::vector<OperatorUse> uses{writes(layer.gradient), reads(gradient)};
    memory_.run({.autograd = {.phase = OpPhase::kBackward},
                 .accumulates_for = layer.parameter,
                 .uses = uses},
                0);
    memory_.end(gradient);
  }

  void backward_node(const Node& node) {
    const auto incoming = gradients_.find(node.output.value());
    if (incoming == gradients_.end()) return;
    std::vector<OperatorUse> uses{reads(incoming->second), reads_parameter(node.layer->parameter)};
    for (const StorageOrdinal input : node.inputs) uses.push_back(reads(input));
    const auto made =
        memory_.run({.autograd = {.phase = OpPhase::kBackward, .runs_in = node.name}, .uses = uses},
                    1 + node.inputs.size());
    for (std::size_t i = 0; i < node.inputs.size(); ++i) add_gradient(node.inputs[i], made[i + 1]);
    accumulate(*node.layer, made[0]);
  }

  void train_on_micro_batch() {
    graph_.clear();
    gradients_.clear();
    current_ = make({}, OpPhase::kForward);
    for (Layer& layer : layers_) forward_layer(layer);
    if (is_tied_) forward_layer(layers_.front());
    const StorageOrdinal loss = current_;
    // What the program reads steers it.
    if (draw(2) == 0 && memory_.ask(loss) % 2 == 0) change({writes(loss)}, OpPhase::kForward);
    gradients_[loss.value()] = make({}, OpPhase::kBackward);
    for (std::size_t i = graph_.size(); i-- > 0;) backward_node(graph_[i]);
    for (const Node& node : graph_) memory_.end(node.output);
  }

  void clip() {
    std::vector<OperatorUse> norms;
    for (const Layer& layer : layers_)
      if (layer.gradient.is_some())
        norms.push_back(reads(make({reads(layer.gradient)}, OpPhase::kOther)));
    const StorageOrdinal norm = make(norms, OpPhase::kOther);
    if (memory_.ask(norm) % 2 == 0) return;
    for (const Layer& layer : layers_)
      if (layer.gradient.is_some()) change({writes(layer.gradient), reads(norm)}, OpPhase::kOther);
  }

  void update_layer(Layer& layer, const std::vector<OperatorUse>& uses) {
    if (!replaces_) {
      change(uses, OpPhase::kOther);
      return;
    }
    const StorageOrdinal before = std::exchange(
        layer.parameter,
        make({reads_parameter(layer.parameter), reads(layer.gradient)}, OpPhase::kOther));
    memory_.end(before);
  }

  void update() {
    const bool at_once = draw(3) == 0;
    std::vector<OperatorUse> all;
    for (Layer& layer : layers_) {
      if (!layer.gradient.is_some()) continue;
      if (!layer.state.is_some())
        layer.state = make({reads_parameter(layer.parameter)}, OpPhase::kOther);
      const std::vector<OperatorUse> uses{writes_parameter(layer.parameter), writes(layer.state),
                                          reads(layer.gradient)};
      if (at_once && !replaces_) {
        all.insert(all.end(), uses.begin(), uses.end());
      } else {
        update_layer(layer, uses);
      }
    }
    if (!all.empty()) change(all, OpPhase::kOther);
    for (Layer& layer : layers_) {
      if (!layer.average.is_some())
        layer.average = make({reads_parameter(layer.parameter)}, OpPhase::kOther);
      change({writes(layer.average), reads_parameter(layer.parameter)}, OpPhase::kOther);
      if (layer.gradient.is_some()) memory_.end(std::exchange(layer.gradient, {}));
    }
  }

  void evaluate() {
    StorageOrdinal value = make({}, OpPhase::kOther);
    for (const Layer& layer : layers_)
      value = make({reads(value), reads_parameter(layer.parameter)}, OpPhase::kOther);
    memory_.ask(value);
  }

  std::mt19937_64 draws_;
  Memory& memory_;
  std::vector<Layer> layers_;
  bool is_tied_ = false;
  bool data_are_leaves_ = false;
  bool replaces_ = false;  ///< Parameters, where others write them.
  StorageOrdinal current_{};
  std::vector<Node> graph_;
  std::map<std::uint64_t, StorageOrdinal> gradients_;
  std::uint64_t nodes_made_ = 0;
};

}  // namespace

void run_random_trainer(std::uint64_t seed, Memory& memory, const std::function<void()>& look) {
  RandomTrainer(seed, memory).run(look);
}

std::vector<RankMemory::Contents> contents_on_one_rank(std::uint64_t seed) {
  RankMemory memory;
  std::vector<RankMemory::Contents> steps;
  run_random_trainer(seed, memory, [&] { steps.push_back(memory.contents()); });
  return steps;
}

std::size_t parameters_of_random_trainer(std::uint64_t seed) {
  RankMemory none;
  return RandomTrainer(seed, none).parameters();
}

}  // namespace spillway::pipeline
