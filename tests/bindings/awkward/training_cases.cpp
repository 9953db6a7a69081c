// Cases about whole training loops: optimizers, modules, checkpoints, data.

#include <torch/jit.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <sstream>

#include "case.h"
#include "run.h"

namespace awkward {

namespace {

/// Trains the usual model for some steps and notes losses, weights and gradients.
template <typename Optimizer, typename OptimizerOptions>
void train_with(Run& run, const OptimizerOptions& options) {
  Mlp model = make_mlp(5);
  Optimizer optimizer(model->parameters(), options);
  for (int step = 0; step < 4; ++step) {
    run.number("loss", train_step(model, optimizer, mlp_batch(), mlp_batch()));
  }
  note_module(run, *model);
}

/// Notes the moments of an Adam, in the order of the parameters.
void note_moments(Run& run, torch::optim::Adam& optimizer) {
  for (const at::Tensor& parameter : optimizer.param_groups()[0].params()) {
    const auto& state = static_cast<const torch::optim::AdamParamState&>(
        *optimizer.state().at(parameter.unsafeGetTensorImpl()));
    run.tensor("exp_avg", state.exp_avg());
    run.tensor("exp_avg_sq", state.exp_avg_sq());
  }
}

/// Convolutions with everything that draws random numbers or keeps statistics.
struct NoisyNetImpl : torch::nn::Module {
  NoisyNetImpl() {
    convolution1 = register_module(
        "convolution1", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 16, 3).padding(1)));
    norm1 = register_module("norm1", torch::nn::BatchNorm2d(16));
    convolution2 = register_module(
        "convolution2", torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 16, 3).padding(1)));
    norm2 = register_module("norm2", torch::nn::BatchNorm2d(16));
    spatial_dropout = register_module("spatial_dropout", torch::nn::Dropout2d(0.2));
    dropout = register_module("dropout", torch::nn::Dropout(0.3));
    head = register_module("head", torch::nn::Linear(16 * 32 * 32, 64));
  }

  at::Tensor forward(at::Tensor x) {
    x = torch::relu(norm1(convolution1(x)));
    x = (norm2(convolution2(spatial_dropout(x))) + x).relu_();
    x = torch::max_pool2d(x, 2);
    return head(dropout(more_to_drop(x.flatten(1))));
  }

  torch::nn::Conv2d convolution1{nullptr}, convolution2{nullptr};
  torch::nn::BatchNorm2d norm1{nullptr}, norm2{nullptr};
  torch::nn::Dropout2d spatial_dropout{nullptr};
  torch::nn::Dropout dropout{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(NoisyNet);

/// Samples computed from their index, so that the order in which workers read does not matter.
class IndexedDataset : public torch::data::datasets::Dataset<IndexedDataset> {
 public:
  torch::data::Example<> get(std::size_t index) override {
    const auto start = static_cast<double>(index);
    const at::Tensor row = torch::arange(64 * 1024, torch::kFloat).add_(start).mul_(0.001).sin_();
    return {row.view({64, 1024}), row.flip(0).view({64, 1024})};
  }
  std::optional<std::size_t> size() const override { return 12; }
};

}  // namespace

SPILLWAY_AWKWARD_CASE(small_activations,
                      "a deep, narrow net, whose tensors are smaller than pages") {
  std::vector<at::Tensor> weights;
  for (int i = 0; i < 6; ++i) weights.push_back((here::randn({96, 96}) * 0.1).requires_grad_());
  for (int step = 0; step < 4; ++step) {
    at::Tensor x = here::randn({384, 96});
    for (std::size_t layer = 0; layer < 240; ++layer)
      x = torch::tanh(x.matmul(weights[layer % weights.size()])) + x * 0.5;
    const at::Tensor loss = x.square().mean();
    const auto gradients = torch::autograd::grad({loss}, weights);
    run.number("loss", loss.item<double>());
    const torch::NoGradGuard guard;
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i].sub_(gradients[i] * 1e-2);
  }
  for (const at::Tensor& weight : weights) run.tensor("weight", weight);
}

SPILLWAY_AWKWARD_CASE(adam, "the moments of Adam") {
  train_with<torch::optim::Adam>(run, torch::optim::AdamOptions(1e-3).weight_decay(0.01));
}

SPILLWAY_AWKWARD_CASE(adamw, "the moments of AdamW, with the running maximum") {
  train_with<torch::optim::AdamW>(run, torch::optim::AdamWOptions(1e-3).amsgrad(true));
}

SPILLWAY_AWKWARD_CASE(sgd_momentum, "the momentum of SGD") {
  train_with<torch::optim::SGD>(
      run, torch::optim::SGDOptions(0.05).momentum(0.9).nesterov(true).weight_decay(1e-4));
}

SPILLWAY_AWKWARD_CASE(rmsprop, "the averages of RMSprop") {
  train_with<torch::optim::RMSprop>(
      run, torch::optim::RMSpropOptions(1e-3).momentum(0.9).centered(true));
}

SPILLWAY_AWKWARD_CASE(adagrad, "the sums of Adagrad") {
  train_with<torch::optim::Adagrad>(run, torch::optim::AdagradOptions(0.01).lr_decay(0.1));
}

SPILLWAY_AWKWARD_CASE(lbfgs_closure, "an optimizer that calls forward and backward many times") {
  Mlp model = make_mlp(2);
  torch::optim::LBFGS optimizer(
      model->parameters(),
      torch::optim::LBFGSOptions(0.5).max_iter(4).history_size(3).line_search_fn("strong_wolfe"));
  const at::Tensor x = mlp_batch();
  const at::Tensor target = mlp_batch();
  for (int step = 0; step < 3; ++step) {
    const at::Tensor loss = optimizer.step([&] {
      optimizer.zero_grad();
      at::Tensor value = torch::mse_loss(model->forward(x), target);
      value.backward();
      return value;
    });
    run.number("loss", loss);
  }
  note_module(run, *model);
}

SPILLWAY_AWKWARD_CASE(two_optimizers, "two models trained against each other") {
  Mlp maker = make_mlp(3);
  Mlp critic = make_mlp(3);
  torch::optim::Adam maker_optimizer(maker->parameters(), 1e-4);
  torch::optim::RMSprop critic_optimizer(critic->parameters(), 1e-4);
  for (int step = 0; step < 3; ++step) {
    const at::Tensor real = mlp_batch();
    const at::Tensor made = maker->forward(mlp_batch());
    critic_optimizer.zero_grad();
    const at::Tensor critic_loss = torch::softplus(-critic->forward(real)).mean() +
                                   torch::softplus(critic->forward(made.detach())).mean();
    critic_loss.backward();
    critic_optimizer.step();
    maker_optimizer.zero_grad();
    const at::Tensor maker_loss = torch::softplus(-critic->forward(made)).mean();
    maker_loss.backward();
    maker_optimizer.step();
    run.number("critic", critic_loss);
    run.number("maker", maker_loss);
  }
  note_module(run, *maker);
  note_module(run, *critic);
}

SPILLWAY_AWKWARD_CASE(lstm_detached_state,
                      "recurrent state carried over steps, cut from its graph") {
  torch::nn::LSTM lstm =
      placed(torch::nn::LSTM(torch::nn::LSTMOptions(512, 512).num_layers(2).dropout(0.1)));
  torch::nn::GRU gru = placed(torch::nn::GRU(torch::nn::GRUOptions(512, 512)));
  std::vector<at::Tensor> parameters = lstm->parameters();
  for (const at::Tensor& each : gru->parameters()) {
    parameters.push_back(each);
  }
  torch::optim::Adam optimizer(parameters, 1e-3);
  const at::Tensor zeros = here::zeros({2, 16, 512});
  std::tuple<at::Tensor, at::Tensor> state{zeros, zeros.clone()};
  at::Tensor gru_state = here::zeros({1, 16, 512});
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const auto [middle, next] = lstm->forward(here::randn({8, 16, 512}), state);
    const auto [out, gru_next] = gru->forward(more_to_drop(middle), gru_state);
    const at::Tensor loss = out.pow(2).mean();
    loss.backward();
    torch::nn::utils::clip_grad_norm_(parameters, 0.5);
    optimizer.step();
    state = {std::get<0>(next).detach(), std::get<1>(next).detach()};
    gru_state = gru_next.detach();
    run.number("loss", loss);
    run.tensor("cell", std::get<1>(state));
  }
  note_module(run, *lstm);
  note_module(run, *gru);
}

SPILLWAY_AWKWARD_CASE(ema_copy, "a cloned model that follows the trained one") {
  Mlp model = make_mlp();
  Mlp average(std::dynamic_pointer_cast<MlpImpl>(model->clone()));
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int step = 0; step < 4; ++step) {
    run.number("loss", train_step(model, optimizer, mlp_batch(), mlp_batch()));
    const at::NoGradGuard no_grad;
    const auto from = model->parameters();
    const auto to = average->parameters();
    for (std::size_t i = 0; i < from.size(); ++i) {
      to[i].mul_(0.9).add_(from[i], 0.1);
    }
    run.tensor("averaged", average->forward(mlp_batch()));
  }
  note_module(run, *average);
}

SPILLWAY_AWKWARD_CASE(evaluation_between, "evaluation without gradients between training steps") {
  Mlp model = make_mlp();
  torch::optim::Adam optimizer(model->parameters(), 1e-3);
  const at::Tensor held_out = here::randn({4 * kMlpBatch, kMlpWidth});
  for (int step = 0; step < 4; ++step) {
    run.number("loss", train_step(model, optimizer, mlp_batch(), mlp_batch()));
    model->eval();
    const at::NoGradGuard no_grad;
    for (const at::Tensor& part : held_out.split(kMlpBatch)) {
      run.number("held out", model->forward(part).pow(2).mean());
    }
    model->train();
  }
  note_module(run, *model);
}

SPILLWAY_AWKWARD_CASE(torchscript, "a scripted module and a scripted function in training") {
  torch::jit::Module module("net");
  for (const char* const name : {"w1", "w2", "w3", "w4"}) {
    module.register_parameter(name, (here::randn({1024, 1024}) * 0.03).requires_grad_(), false);
  }
  module.define(R"(
    def forward(self, x):
        for i in range(2):
            h = torch.mm(x, self.w1).tanh() * 0.5 + 0.1
            x = torch.relu(torch.mm(h, self.w2) + x * h.sigmoid())
            if i > 0:
                x = torch.mm(x, self.w3).tanh_()
            x = x + torch.mm(h, self.w4)
        return x
  )");
  const auto functions = torch::jit::compile(R"(
    def loss(out, target):
        difference = out - target
        return (difference * difference).mean()
  )");
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : module.parameters()) {
    parameters.push_back(parameter);
  }
  torch::optim::Adam optimizer(parameters, 1e-3);
  // The first two runs are interpreted and profiled, later ones run an optimised graph.
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    const at::Tensor out = module.forward({mlp_batch()}).toTensor();
    const at::Tensor loss = functions->run_method("loss", out, mlp_batch()).toTensor();
    loss.backward();
    optimizer.step();
    run.number("loss", loss);
  }
  run.tensors("parameter", parameters);
  std::stringstream archive;
  module.save(archive);
  const torch::jit::Module copy = module.deepcopy();
  run.tensor("copied", copy.attr("w2").toTensor());
}

SPILLWAY_AWKWARD_CASE(caught_exceptions, "training goes on after operators that threw") {
  Mlp model = make_mlp();
  torch::optim::Adam optimizer(model->parameters(), 1e-3);
  torch::nn::Embedding table = placed(torch::nn::Embedding(2048, 1024));
  for (int step = 0; step < 3; ++step) {
    const at::Tensor x = mlp_batch();
    run.text("shapes", thrown_by([&] { x.mm(x); }));
    // On a GPU a kernel finds out, and the process has no use of it any more.
    if (device().is_cpu())
      run.text("index", thrown_by([&] { table->forward(torch::tensor({5, 4000})); }));
    run.text("types", thrown_by([&] { x.mm(x.t().to(torch::kDouble)); }));
    run.text("view", thrown_by([&] { x.t().view({-1}); }));
    run.text("resize", thrown_by([&] { x.view({-1}).resize_({1}).view({3}); }));
    if (device().is_cpu())
      run.text("scatter", thrown_by([&] {
                 here::zeros({1024, 512}).scatter_(0, here::full({512, 512}, 2000), x);
               }));
    const std::string absurd = thrown_by([] { here::empty({std::int64_t{1} << 50}).fill_(1); });
    run.text("absurd size", absurd == "no exception" ? "allocated" : "refused");
    at::Tensor output = model->forward(x);
    run.text("loss", thrown_by([&] {
                       torch::mse_loss(output, x.narrow(0, 0, 100)).backward();
                     }).substr(0, 40));
    run.number("loss", train_step(model, optimizer, x, mlp_batch()));
  }
  note_module(run, *model);
}

SPILLWAY_AWKWARD_CASE(save_load_file, "model, optimizer and tensors through files in mid-run") {
  Mlp model = make_mlp();
  torch::optim::Adam optimizer(model->parameters(), 1e-3);
  for (int step = 0; step < 2; ++step) {
    run.number("loss", train_step(model, optimizer, mlp_batch(), mlp_batch()));
  }
  torch::save(model, run.file("model.pt"));
  torch::save(optimizer, run.file("optimizer.pt"));
  torch::save(model->parameters(), run.file("tensors.pt"));
  run.number("loss", train_step(model, optimizer, mlp_batch(), mlp_batch()));
  std::vector<at::Tensor> loaded;
  torch::load(loaded, run.file("tensors.pt"));
  run.tensors("loaded", loaded);
  torch::load(model, run.file("model.pt"));
  torch::load(optimizer, run.file("optimizer.pt"));
  for (int step = 0; step < 2; ++step) {
    run.number("loss", train_step(model, optimizer, mlp_batch(), mlp_batch()));
  }
  note_module(run, *model);
  note_moments(run, optimizer);
}

SPILLWAY_AWKWARD_CASE(save_load_stream, "the same through streams and pickles in memory") {
  Mlp model = make_mlp(3);
  torch::optim::Adam optimizer(model->parameters(), 1e-3);
  for (int step = 0; step < 3; ++step) {
    run.number("loss", train_step(model, optimizer, mlp_batch(), mlp_batch()));
    std::stringstream model_stream;
    std::stringstream optimizer_stream;
    torch::save(model, model_stream);
    torch::save(optimizer, optimizer_stream);
    Mlp other = make_mlp(3);
    torch::load(other, model_stream);
    torch::optim::Adam other_optimizer(other->parameters(), 1e-3);
    torch::load(other_optimizer, optimizer_stream);
    const std::vector<char> pickle = torch::pickle_save(model->layers[step]->weight.detach());
    run.tensor("pickled", torch::pickle_load(pickle).toTensor());
    note_module(run, *other);
    note_moments(run, other_optimizer);
  }
}

SPILLWAY_AWKWARD_CASE(checkpoint_resume, "a run broken off and resumed by new objects") {
  const std::string model_file = run.file("model.pt");
  const std::string optimizer_file = run.file("optimizer.pt");
  at::Generator generator = new_generator(run.seed());
  at::Tensor generator_state;
  for (int part = 0; part < 3; ++part) {
    Mlp model = make_mlp();
    torch::optim::Adam optimizer(model->parameters(), 1e-3);
    if (part > 0) {
      torch::load(model, model_file);
      torch::load(optimizer, optimizer_file);
      generator.set_state(generator_state);
    }
    for (int step = 0; step < 2; ++step) {
      const at::Tensor x = here::randn({kMlpBatch, kMlpWidth}, generator);
      const at::Tensor target = here::randn({kMlpBatch, kMlpWidth}, generator);
      run.number("loss", train_step(model, optimizer, x, target));
    }
    torch::save(model, model_file);
    torch::save(optimizer, optimizer_file);
    generator_state = generator.get_state();
    note_module(run, *model);
  }
}

SPILLWAY_AWKWARD_CASE(gradient_accumulation, "gradients that collect over several batches") {
  Mlp model = make_mlp();
  torch::optim::Adam optimizer(model->parameters(), 1e-3);
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    for (int part = 0; part < 4; ++part) {
      const at::Tensor x = here::randn({256, 1024});
      const at::Tensor loss = torch::mse_loss(model->forward(x), here::randn({256, 1024})) / 4;
      loss.backward();
      run.number("loss", loss);
    }
    run.number("norm", torch::nn::utils::clip_grad_norm_(model->parameters(), 0.01));
    optimizer.step();
  }
  note_module(run, *model);
}

SPILLWAY_AWKWARD_CASE(zero_grad, "gradients zeroed in place, dropped, or kept by the program") {
  Mlp model = make_mlp();
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  std::vector<at::Tensor> kept;
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad(/*set_to_none=*/step % 2 == 0);
    const at::Tensor loss = torch::mse_loss(model->forward(mlp_batch()), mlp_batch());
    loss.backward();
    optimizer.step();
    run.number("loss", loss);
    if (step == 1 || step == 2) {
      kept.push_back(model->layers[1]->weight.grad());
    }
  }
  run.tensors("kept", kept);
  note_module(run, *model);
}

SPILLWAY_AWKWARD_CASE(tied_weights, "an embedding and an output layer that share one parameter") {
  torch::nn::Embedding embedding = placed(torch::nn::Embedding(3000, 512));
  torch::nn::TransformerEncoderLayer layer = placed(torch::nn::TransformerEncoderLayer(
      torch::nn::TransformerEncoderLayerOptions(512, 8).dim_feedforward(1024).dropout(0.1)));
  torch::nn::Linear output =
      placed(torch::nn::Linear(torch::nn::LinearOptions(512, 3000).bias(false)));
  output->weight = embedding->weight;
  std::vector<at::Tensor> parameters = layer->parameters();
  parameters.push_back(embedding->weight);
  torch::optim::AdamW optimizer(parameters, 1e-3);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const at::Tensor tokens = here::randint(0, 3000, {64, 6});
    const at::Tensor hidden = more_to_drop(layer->forward(embedding->forward(tokens)));
    const at::Tensor out = output->forward(hidden);
    const at::Tensor loss =
        torch::cross_entropy_loss(out.flatten(0, 1), tokens.roll(-1, 0).flatten());
    loss.backward();
    optimizer.step();
    run.number("loss", loss);
  }
  run.tensor("shared", output->weight);
  run.tensor("shared.grad", embedding->weight.grad());
  note_module(run, *layer);
}

SPILLWAY_AWKWARD_CASE(random_stream, "the random numbers of dropout, and batch-norm statistics") {
  NoisyNet model = placed(NoisyNet());
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const at::Tensor x = here::randn({24, 3, 64, 64});
    const at::Tensor target = here::randint(0, 64, {24});
    const at::Tensor loss = torch::cross_entropy_loss(model->forward(x), target);
    loss.backward();
    optimizer.step();
    run.number("loss", loss);
    run.tensor("generator", default_generator().get_state());
  }
  model->eval();
  run.tensor("evaluated", model->forward(here::ones({8, 3, 64, 64})));
  note_module(run, *model);
}

SPILLWAY_AWKWARD_CASE(data_loader, "batches made by worker threads of a data loader") {
  Mlp model = make_mlp();
  torch::optim::Adam optimizer(model->parameters(), 1e-3);
  auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      IndexedDataset().map(torch::data::transforms::Stack<>()),
      torch::data::DataLoaderOptions().batch_size(4).workers(2));
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const auto& batch : *loader) {
      run.number("loss",
                 train_step(model, optimizer, batch.data.to(device()).view({kMlpBatch, kMlpWidth}),
                            batch.target.to(device()).view({kMlpBatch, kMlpWidth})));
    }
  }
  note_module(run, *model);
}

SPILLWAY_AWKWARD_CASE(fused_and_foreach, "operators that take lists of tensors") {
  std::vector<at::Tensor> values, grads, first, second, steps;
  for (int i = 0; i < 24; ++i) {
    values.push_back(here::randn({600, 500}));
    grads.push_back(here::zeros({600, 500}));
    first.push_back(here::zeros({600, 500}));
    second.push_back(here::zeros({600, 500}));
    steps.push_back(here::zeros({}));
  }
  const auto part = [](const std::vector<at::Tensor>& all, std::size_t start) {
    return std::vector<at::Tensor>(all.begin() + static_cast<std::ptrdiff_t>(start),
                                   all.begin() + static_cast<std::ptrdiff_t>(start) + 3);
  };
  for ([[maybe_unused]] const int step : run.steps(3)) {
    for (std::size_t i = 0; i < values.size(); i += 3) {
      const auto now = part(grads, i);
      at::_foreach_mul_(now, 0.5);
      at::_foreach_add_(now, part(values, (i + 9) % 24), 0.01);
      at::_foreach_add_(part(steps, i), 1);
      at::_fused_adam_(part(values, i), now, part(first, i), part(second, i), {}, part(steps, i),
                       1e-3, 0.9, 0.999, 0.01, 1e-8, false, false);
    }
    run.tensor("norms", torch::stack(at::_foreach_norm(part(values, 3))));
  }
  run.tensors("value", values);
  run.tensors("second", second);
}

}  // namespace awkward
