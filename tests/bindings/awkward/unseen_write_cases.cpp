// Cases about writes past the operators, of what operators have read or made in the same step: one
// that runs again must find its arguments as they were.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <stdexcept>

#include "case.h"
#include "run.h"

namespace awkward {
namespace {

constexpr std::int64_t kWidth = 1024;  // 4 MiB per weight and activation.
constexpr int kLayers = 6;

/// One layer's activation, made of its input and what it is multiplied by.
using Layer = std::function<at::Tensor(const at::Tensor& hidden, int layer)>;

/// Trains a chain of products for a few steps.
void train(Run& run, const Layer& layer) {
  std::vector<at::Tensor> weights;
  for (int i = 0; i < kLayers; ++i) {
    weights.push_back((here::randn({kWidth, kWidth}) * 0.03).requires_grad_());
  }
  torch::optim::SGD optimizer(weights, 0.1);
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    at::Tensor x = here::randn({kWidth, kWidth});
    for (int i = 0; i < kLayers; ++i) {
      x = layer(x.mm(weights[i]), i);
    }
    const at::Tensor loss = x.pow(2).mean();
    loss.backward();
    optimizer.step();
    run.number("loss", loss);
  }
  run.tensors("weight", weights);
}

/// Part of a tensor that begins at a whole block, which direct I/O asks for.
struct Blocks {
  explicit Blocks(const at::Tensor& tensor) {
    constexpr std::uintptr_t kBlock = 4096;
    const auto start = reinterpret_cast<std::uintptr_t>(tensor.data_ptr());
    const std::uintptr_t aligned = (start + kBlock - 1) / kBlock * kBlock;
    address = reinterpret_cast<void*>(aligned);
    size = kWidth * kWidth * sizeof(float) / 2;
  }
  void* address;
  std::size_t size;
};

}  // namespace

SPILLWAY_AWKWARD_CASE(filled_by_hand, "tensors of one value that a pointer fills afterwards") {
  const std::array<std::function<at::Tensor(const at::Tensor&)>, kLayers> makers{
      [](const at::Tensor& like) { return torch::zeros_like(like); },
      [](const at::Tensor& like) { return torch::ones_like(like); },
      [](const at::Tensor& like) { return torch::full_like(like, 2.5); },
      [](const at::Tensor& like) {
        return like.new_zeros({kWidth, kWidth});
      },
      [](const at::Tensor& like) {
        return like.new_full({kWidth, kWidth}, 0.5);
      },
      [](const at::Tensor& like) { return torch::empty_like(like).zero_(); }};
  train(run, [&](const at::Tensor& hidden, int layer) {
    const at::Tensor mask = makers[static_cast<std::size_t>(layer)](hidden.detach());
    auto* const values = mask.data_ptr<float>();
    for (std::int64_t i = layer; i < mask.numel(); i += 3) {
      values[i] = 1.5F;
    }
    return (hidden * mask).sin();
  });
}

SPILLWAY_AWKWARD_CASE(small_alias, "a second storage over memory that is too small to leave") {
  constexpr std::int64_t kRows = 64;  // 256 KiB, which records of operators refer to.
  const at::Tensor base = here::randn({kRows, kWidth});
  const at::Tensor alias = torch::from_blob(base.data_ptr(), {kRows * kWidth}, device());
  train(run, [&](const at::Tensor& hidden, int) {
    const at::Tensor moved = hidden.view({kWidth / kRows, kRows, kWidth}) + base;
    alias.mul_(0.75).add_(0.125);
    return moved.sin().view({kWidth, kWidth});
  });
  run.tensor("base", base);
}

SPILLWAY_AWKWARD_CASE(read_into_ingredient, "direct I/O into what an operator has read before") {
  const std::string path = run.file("ingredient");
  const at::Tensor source = here::randn({kWidth, kWidth});
  const Blocks from(source);
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT, 0600);
  // A file system without direct I/O cannot tell who reads into which tensor.
  const bool is_direct = descriptor >= 0;
  const auto expect_whole = [](ssize_t moved, std::size_t size) {
    if (moved != static_cast<ssize_t>(size)) {
      throw std::runtime_error("moved " + std::to_string(moved) + " bytes");
    }
  };
  if (is_direct) {
    expect_whole(pwrite(descriptor, from.address, from.size, 0), from.size);
  }
  // They live on, and are no results: where their blocks begin differs from run to run.
  std::vector<at::Tensor> ingredients;
  train(run, [&](const at::Tensor& hidden, int layer) {
    if (layer == 0) {
      ingredients.clear();
    }
    const at::Tensor ingredient = hidden.detach() * 0.5;
    const at::Tensor moved = hidden + ingredient;  // Which autograd does not save.
    ingredients.push_back(ingredient);
    const Blocks into(ingredient);
    if (is_direct) {
      expect_whole(pread(descriptor, into.address, into.size, 0), into.size);
    }
    return moved.sin();
  });
  if (is_direct) {
    close(descriptor);
  }
}

SPILLWAY_AWKWARD_CASE(changed_by_hand,
                      "pointers that change what operators have made and have read") {
  std::vector<at::Tensor> shifts;  // They live on: nothing of them is settled by their end.
  train(run, [&](const at::Tensor& hidden, int layer) {
    if (layer == 0) {
      shifts.clear();
    }
    const at::Tensor scale = hidden.detach().abs();  // Which autograd saves, as it is then.
    auto* const values = scale.data_ptr<float>();
    for (std::int64_t i = layer; i < scale.numel(); i += 3) {
      values[i] = 1.5F;
    }
    const at::Tensor shift = hidden.detach() * 0.5;
    const at::Tensor moved = hidden * scale + shift;  // Which does not save the shift.
    const at::Tensor result = moved.sin();            // But what it has gone into.
    const std::int64_t changed = layer % 2 == 0 ? 1 : shift.numel();
    std::fill_n(shift.data_ptr<float>(), changed, 7.0F);
    shifts.push_back(shift);
    return result;
  });
  run.tensors("shift", shifts);
}

SPILLWAY_AWKWARD_CASE(changed_late_by_hand,
                      "a pointer that changes ingredients when much has gone") {
  std::vector<at::Tensor> shifts;
  train(run, [&](const at::Tensor& hidden, int layer) {
    if (layer == 0) {
      shifts.clear();
    }
    shifts.push_back(hidden.detach() * 0.5);
    const at::Tensor result = (hidden + shifts.back()).sin();
    if (layer + 1 == kLayers) {
      for (const at::Tensor& shift : shifts) {
        std::fill_n(shift.data_ptr<float>(), shift.numel(), 7.0F);
      }
    }
    return result;
  });
  run.tensors("shift", shifts);
}

}  // namespace awkward
