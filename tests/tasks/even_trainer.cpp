#include "even_trainer.h"

namespace spillway::pipeline {

EvenTrainer::EvenTrainer(QueuedMemory& memory, std::uint32_t stages, bool in_parts)
    : memory_(memory), in_parts_(in_parts), gradients_(stages) {
  for (std::uint32_t i = 0; i < stages; ++i) parameters_.push_back(run({}, {}, Duration(0)));
}

void EvenTrainer::train_on_micro_batch() {
  StorageOrdinal value = run({.phase = OpPhase::kForward}, {}, Duration(0));
  std::vector<StorageOrdinal> inputs;
  const std::uint64_t first_node = nodes_ + 1;
  for (const StorageOrdinal parameter : parameters_) {
    inputs.push_back(value);
    value = run({.phase = OpPhase::kForward, .made = {1, ++nodes_}},
                {{value}, {parameter, false, true}}, kForward);
  }
  for (std::size_t i = parameters_.size(); i-- > 0;) {
    const Gradients made = backward(i, first_node + i, value, inputs[i]);
    value = made.input;
    add_up(i, made.weight);
  }
}

EvenTrainer::Gradients EvenTrainer::backward(std::size_t layer, std::uint64_t node,
                                             StorageOrdinal of, StorageOrdinal input) {
  const AutogradFacts autograd{.phase = OpPhase::kBackward, .runs_in = {1, node}};
  const OperatorUse weight{parameters_[layer], false, true};
  if (in_parts_) {
    const StorageOrdinal of_input = run(autograd, {{of}, weight}, kGradient);
    return {of_input, run(autograd, {{of}, {input}}, kGradient)};
  }
  const std::vector<OperatorUse> uses{{of}, weight, {input}};
  const auto made = memory_.run_for(2 * kGradient, {.autograd = autograd, .uses = uses}, 2);
  return {made[0], made[1]};
}

StorageOrdinal EvenTrainer::run(const AutogradFacts& autograd, const std::vector<OperatorUse>& uses,
                                Duration time) {
  return memory_.run_for(time, {.autograd = autograd, .uses = uses}, 1).front();
}

void EvenTrainer::add_up(std::size_t of, StorageOrdinal gradient) {
  if (!gradients_[of].is_some()) {
    gradients_[of] = gradient;
    return;
  }
  const std::vector<OperatorUse> uses{{gradients_[of], true}, {gradient}};
  memory_.run(
      {.autograd = {.phase = OpPhase::kBackward}, .accumulates_for = parameters_[of], .uses = uses},
      0);
}

}  // namespace spillway::pipeline
