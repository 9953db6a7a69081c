// Saves what it trains over the checkpoint of the run before, as trainers do, and prints what it
// reads back.

#include <torch/torch.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

namespace {

void save(const torch::nn::Linear& model, const torch::optim::Adam& optimizer) {
  torch::save(model, "model.new");
  torch::save(optimizer, "optimizer.new");
  std::filesystem::rename("model.new", "model.pt");
  std::rename("optimizer.new", "optimizer.pt");
}

double fold(const torch::nn::Linear& model) { return model->weight.sum().item<double>(); }

}  // namespace

int main() {
  torch::manual_seed(1);
  torch::nn::Linear model(64, 64);
  torch::optim::Adam optimizer(model->parameters());
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    model->forward(torch::ones({2, 64})).sum().backward();
    optimizer.step();
    save(model, optimizer);
    torch::nn::Linear loaded(64, 64);
    torch::load(loaded, "model.pt");
    torch::optim::Adam loaded_optimizer(loaded->parameters());
    torch::load(loaded_optimizer, "optimizer.pt");
    std::cout << fold(model) << " " << fold(loaded) << " " << std::filesystem::file_size("model.pt")
              << "\n";
    std::ofstream("losses", std::ios::app) << step << " " << fold(loaded) << "\n";
  }
  std::ifstream losses("losses");
  std::cout << std::string(std::istreambuf_iterator<char>(losses), {});
}
