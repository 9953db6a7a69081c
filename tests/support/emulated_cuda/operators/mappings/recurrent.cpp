// Recurrent networks of cuDNN by those of the CPU, layer by layer, with dropout between them.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gru.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/rnn_relu.h>
#include <ATen/ops/rnn_tanh.h>
#include <ATen/ops/tensor.h>

#include "../gradients.h"
#include "../settings.h"
#include "table.h"

namespace spillway::emulated {
namespace {

enum class Cell : std::uint8_t { kRelu, kTanh, kLstm, kGru };  // In the order of cuDNN.

struct Network {
  Cell cell;
  std::int64_t layers;
  std::int64_t directions;
  std::size_t weights_per_direction;
  bool has_biases;
  bool is_batch_first;
  double dropout;
  bool is_training;
  std::vector<std::int64_t> batch_sizes;  ///< Not empty: the input is packed.
};

Network network_of(const Arguments& arguments) {
  const auto per_direction = std::size_t(arguments.integer("weight_stride0"));
  const bool has_projection = arguments.integer("proj_size") > 0;
  return {.cell = Cell(arguments.integer("mode")),
          .layers = arguments.integer("num_layers"),
          .directions = arguments.flag("bidirectional") ? 2 : 1,
          .weights_per_direction = per_direction,
          .has_biases = per_direction - std::size_t(has_projection) == 4,
          .is_batch_first = arguments.flag("batch_first"),
          .dropout = arguments.number("dropout"),
          .is_training = arguments.flag("train"),
          .batch_sizes = arguments.integers("batch_sizes")};
}

Tensors pair(std::tuple<at::Tensor, at::Tensor> results) {
  return {std::get<0>(results), std::get<1>(results)};
}

Tensors triple(std::tuple<at::Tensor, at::Tensor, at::Tensor> results) {
  return {std::get<0>(results), std::get<1>(results), std::get<2>(results)};
}

/// Of one layer, time first: output, hidden state and, of an LSTM, cell state.
Tensors layer_results(const Network& network, const at::Tensor& in, const Tensors& states,
                      const Tensors& weights) {
  const at::Tensor& hidden = states[0];
  const bool both = network.directions == 2;
  const bool biases = network.has_biases;
  const bool trains = network.is_training;
  if (!network.batch_sizes.empty()) {
    const at::Tensor sizes = at::tensor(network.batch_sizes);
    switch (network.cell) {
      case Cell::kRelu:
        return pair(at::rnn_relu(in, sizes, hidden, weights, biases, 1, 0.0, trains, both));
      case Cell::kTanh:
        return pair(at::rnn_tanh(in, sizes, hidden, weights, biases, 1, 0.0, trains, both));
      case Cell::kGru:
        return pair(at::gru(in, sizes, hidden, weights, biases, 1, 0.0, trains, both));
      case Cell::kLstm:
        return triple(at::lstm(in, sizes, states, weights, biases, 1, 0.0, trains, both));
    }
  }
  switch (network.cell) {
    case Cell::kRelu:
      return pair(at::rnn_relu(in, hidden, weights, biases, 1, 0.0, trains, both, false));
    case Cell::kTanh:
      return pair(at::rnn_tanh(in, hidden, weights, biases, 1, 0.0, trains, both, false));
    case Cell::kGru: return pair(at::gru(in, hidden, weights, biases, 1, 0.0, trains, both, false));
    case Cell::kLstm: break;
  }
  return triple(at::lstm(in, states, weights, biases, 1, 0.0, trains, both, false));
}

/// `leaves`: input, hidden state, cell state or undefined, then the weights.
Tensors all_layers(const Network& network, const Tensors& leaves, const at::Generator& generator) {
  const bool is_turned = network.is_batch_first && network.batch_sizes.empty();
  at::Tensor output = is_turned ? leaves[0].transpose(0, 1) : leaves[0];
  Tensors hidden;
  Tensors cells;
  const auto per_layer = std::ptrdiff_t(network.weights_per_direction) * network.directions;
  for (std::int64_t layer = 0; layer < network.layers; ++layer) {
    const auto first = leaves.begin() + 3 + std::ptrdiff_t(layer) * per_layer;
    Tensors states;
    for (const at::Tensor& all : {leaves[1], leaves[2]})
      if (all.defined())
        states.push_back(all.narrow(0, layer * network.directions, network.directions));
    const Tensors results =
        layer_results(network, output, states, Tensors(first, first + per_layer));
    output = results[0];
    hidden.push_back(results[1]);
    if (results.size() > 2) cells.push_back(results[2]);
    if (network.dropout > 0 && network.is_training && layer + 1 < network.layers) {
      const at::Tensor noise =
          at::empty_like(output.detach()).bernoulli_(1 - network.dropout, generator);
      output = output.mul(noise.div_(1 - network.dropout));
    }
  }
  const at::Tensor last_cells =
      cells.empty() ? at::empty({0}, leaves[1].options()) : at::cat(cells, 0);
  return {is_turned ? output.transpose(0, 1) : output, at::cat(hidden, 0), last_cells};
}

Tensors leaves_of(const Arguments& arguments) {
  Tensors leaves = {arguments.tensor("input"), arguments.tensor("hx"),
                    arguments.optional_tensor("cx").value_or(at::Tensor())};
  for (const at::Tensor& weight : arguments.tensors("weight")) leaves.push_back(weight);
  return leaves;
}

/// As with cuDNN the draws come from a state in the memory of the device, which moves on: a seed
/// and the number of calls.
at::Tensor origin_from(const Arguments& arguments, const Draws& draws) {
  const auto state = arguments.optional_tensor("dropout_state");
  if (settings().draws_as_cpu || !state) return draws.origin;
  auto* numbers = static_cast<std::int64_t*>(state->mutable_data_ptr());
  const std::uint64_t seed = seed_of(std::uint64_t(numbers[0]), std::uint64_t(numbers[1]++));
  return at::tensor(std::int64_t(seed));
}

/// The reserve, bytes that go from forward to backward, holds what the dropout was drawn from.
at::Tensor reserve_of(const at::Tensor& origin) {
  return origin.scalar_type() == at::kLong ? origin.reshape({1}).view(at::kByte) : origin.clone();
}

at::Tensor origin_in(const at::Tensor& reserve) {
  constexpr std::int64_t kSeedBytes = sizeof(std::int64_t);
  return reserve.numel() == kSeedBytes ? reserve.clone().view(at::kLong).reshape({})
                                       : reserve.clone();
}

torch::jit::Stack init_dropout_state(const Arguments& arguments, const Draws&) {
  return {at::tensor({arguments.integer("dropout_seed"), std::int64_t(0)}).view(at::kByte)};
}

torch::jit::Stack recurrent(const Arguments& arguments, const Draws& draws) {
  const Network network = network_of(arguments);
  const bool drops = network.dropout > 0 && network.is_training;
  const at::Tensor origin = drops ? origin_from(arguments, draws) : at::Tensor();
  // The default generator of the CPU has to move on, where it is the source.
  const at::Generator generator =
      !drops || settings().draws_as_cpu ? draws.generator : generator_of(origin);
  const Tensors results =
      results_of([&](const Tensors& leaves) { return all_layers(network, leaves, generator); },
                 leaves_of(arguments));
  const at::Tensor reserve =
      drops ? reserve_of(origin) : at::empty({0}, at::TensorOptions(at::kByte));
  return {results[0], results[1], results[2], reserve,
          arguments.optional_tensor("weight_buf")
              .value_or(at::empty({0}, leaves_of(arguments)[1].options()))};
}

torch::jit::Stack recurrent_backward(const Arguments& arguments, const Draws&) {
  const Network network = network_of(arguments);
  const bool drops = network.dropout > 0 && network.is_training;
  const at::Generator generator =
      drops ? generator_of(origin_in(arguments.tensor("reserve"))) : at::Generator();
  const auto given = [&](const char* name) {
    return arguments.optional_tensor(name).value_or(at::Tensor());
  };
  const Tensors all = gradients_of(
      [&](const Tensors& leaves) { return all_layers(network, leaves, generator); },
      leaves_of(arguments), {given("grad_output"), given("grad_hy"), given("grad_cy")});
  torch::jit::Stack results;
  for (std::size_t i = 0; i < 3; ++i)
    results.emplace_back(arguments.flag("output_mask", i) ? all[i] : at::Tensor());
  c10::List<at::Tensor> weights;
  if (arguments.flag("output_mask", 3))
    for (std::size_t i = 3; i < all.size(); ++i) weights.push_back(all[i]);
  results.emplace_back(std::move(weights));
  return results;
}

}  // namespace

Mappings recurrent_mappings() {
  return {{"aten::_cudnn_init_dropout_state", init_dropout_state},
          {"aten::_cudnn_rnn", recurrent},
          {"aten::_cudnn_rnn_backward", recurrent_backward}};
}

}  // namespace spillway::emulated
