// Cases about tensors, views and the storages below them.

#include <ATen/native/Resize.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "case.h"
#include "run.h"

namespace awkward {

using torch::indexing::None;
using torch::indexing::Slice;

/// What `torch::zeros` gives, but no operator needs all of it at once.
static at::Tensor zeros_part_by_part(std::int64_t count) {
  constexpr std::int64_t kPart = 1'000'000;
  at::Tensor made = here::empty({count});
  for (std::int64_t start = 0; start < count; start += kPart) {
    made.narrow(0, start, std::min(kPart, count - start)).zero_();
  }
  return made;
}

SPILLWAY_AWKWARD_CASE(inplace_chain, "writes of in-place operators, also those autograd sees") {
  Ballast ballast(16, 4);
  auto& tensors = ballast.tensors();
  const at::Tensor weight = here::randn({1024, 1024}).requires_grad_();
  for (const int step : run.steps(4)) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      at::Tensor t = tensors[i];
      t.mul_(0.9).add_(tensors[(i + 3) % tensors.size()], 0.1).sin_().clamp_(-0.8, 0.8).neg_();
      t.addcmul_(tensors[(i + 5) % tensors.size()], t, 0.5);
      t.select(0, step).zero_();
      t.narrow(0, 1000, 5000).copy_(tensors[(i + 1) % tensors.size()].narrow(0, 0, 5000));
    }
    at::Tensor hidden = tensors[0].view({1024, 1024}).mm(weight);
    hidden.mul_(tensors[1].view({1024, 1024})).add_(0.25).sin_();
    hidden[3].zero_();
    hidden.relu_();
    hidden.mean().backward();
    run.tensor("grad", weight.grad());
  }
  run.tensors("tensor", tensors);
  run.number("version", static_cast<double>(tensors[0]._version()));
}

SPILLWAY_AWKWARD_CASE(nested_views, "views of views, read and written through") {
  std::vector<at::Tensor> bases;
  for (int i = 0; i < 10; ++i) {
    bases.push_back(here::randn({2048, 1024}));
  }
  for (const int step : run.steps(4)) {
    for (std::size_t i = 0; i < bases.size(); ++i) {
      at::Tensor base = bases[i];
      const at::Tensor other = bases[(i + 4) % bases.size()];
      const at::Tensor crossed = base.t().narrow(0, 100, 800).slice(1, 3, 2043, 5);
      crossed.add_(other.t().narrow(0, 7, 800).slice(1, 2, 2042, 5), 0.25);
      base.view({1024, 2048}).index({Slice(None, None, 3), Slice(10, 2000, 7)}).mul_(0.5);
      base.unfold(0, 16, 16).permute({2, 0, 1}).select(0, 3).sub_(0.125);
      base.diagonal(5).fill_(step);
      run.number("windows", base.view(-1).as_strided({2000, 4096}, {1000, 1}, 77).sum());
      base.add_(other[step].expand({2048, 1024}), 0.01);
      run.text("overlap", thrown_by([&] { other[0].expand({2048, 1024}).add_(1); }));
    }
  }
  run.tensors("base", bases);
}

SPILLWAY_AWKWARD_CASE(out_variants, "results written into tensors that the caller gives") {
  const Ballast ballast(14, 4);
  const auto& in = ballast.tensors();
  at::Tensor wide = here::zeros({1024, 2048});
  at::Tensor product = here::empty({0});
  at::Tensor sorted = here::empty({0});
  at::Tensor order = here::empty({0}, torch::kLong);
  at::Tensor joined = here::empty({0});
  for (const int step : run.steps(4)) {
    const at::Tensor a = in[step * 2].view({1024, 1024});
    const at::Tensor b = in[step + 9].view({1024, 1024});
    product.resize_({0});
    joined.resize_({0});
    at::Tensor left = wide.narrow(1, 0, 1024);
    at::add_out(left, a, b, 0.5);
    at::Tensor right = wide.narrow(1, 1024, 1024).t();
    at::mul_out(right, a, b);
    at::mm_out(product, a, b.t());
    at::sort_out(sorted, order, a, 1, /*descending=*/step % 2 == 0);
    at::cat_out(joined, {a, b}, step % 2);
    at::Tensor total = wide.select(0, 0).narrow(0, 512, 1024);
    at::sum_out(total, product, {0});
    run.tensor("product", product);
    run.tensor("sorted", sorted);
    run.tensor("order", order);
    run.tensor("joined", joined);
  }
  run.tensor("wide", wide);
}

SPILLWAY_AWKWARD_CASE(storage_exchange,
                      "set_, set_data and swapped storages keep their own bytes") {
  Ballast ballast(12, 4);
  std::vector<at::Tensor> t = ballast.tensors();
  std::array<at::Tensor, 2> pair{normal_mib(4), normal_mib(4)};
  const at::Tensor parameter = here::randn({1024, 1024}).requires_grad_();
  for (const int step : run.steps(4)) {
    const at::Tensor first = pair[0].alias();
    pair[0].set_(pair[1].storage(), 0, {1024, 1024}, {1024, 1});
    pair[1].set_(first.storage(), 512, {1000, 1000}, {1, 1000});
    pair[0].mul_(2);
    pair[1].add_(1);
    // Two storages trade their memory; all views of both see it.
    c10::DataPtr memory = t[2].storage().set_data_ptr(c10::DataPtr());
    memory = t[3].storage().set_data_ptr(std::move(memory));
    t[2].storage().set_data_ptr_noswap(std::move(memory));
    ballast.sweep();
    parameter.set_data(t[4 + step].view({1024, 1024}));
    parameter.pow(2).mean().backward();
    t[4 + step].add_(0.5);  // Writes the parameter too.
    std::swap(t[8], t[9]);
    run.tensor("parameter", parameter);
    run.tensor("grad", parameter.grad());
  }
  run.tensors("tensor", t);
  run.tensors("exchanged", {pair[0], pair[1]});
}

SPILLWAY_AWKWARD_CASE(resize, "storages that grow and shrink keep the bytes they should") {
  Ballast ballast(12, 4);
  std::vector<at::Tensor> t;
  for (int i = 0; i < 6; ++i) {
    t.push_back(normal_mib(2 + 2 * (i % 3)));
  }
  at::Tensor released = normal_mib(8);
  for (const int step : run.steps(2)) {
    for (at::Tensor& each : t) {
      const std::int64_t old_size = each.numel();
      each.resize_({old_size + 700'000});
      each.narrow(0, old_size, 700'000).fill_(step);
      ballast.sweep();
      each.resize_({old_size / 2});
      run.tensor("shrunk", each);
      each.resize_({old_size});  // The bytes behind the shrunk size are still there.
      run.tensor("grown", each);
    }
    if (!device().is_cpu()) continue;  // LibTorch has a function of its own for each device.
    // The storage is emptied below living tensors and filled again later.
    c10::StorageImpl* const storage = released.storage().unsafeGetStorageImpl();
    const at::Tensor kept = released.clone();
    at::native::resize_bytes_cpu(storage, 0);
    ballast.sweep();
    at::native::resize_bytes_cpu(storage, kept.nbytes());
    released.copy_(kept).add_(1);
    run.tensor("released", released);
  }
  run.tensors("ballast", ballast.tensors());
}

SPILLWAY_AWKWARD_CASE(blob_over_malloc, "tensors over memory of the program itself") {
  Ballast ballast(16, 4);
  constexpr std::size_t kBytes = std::size_t{6} << 20;
  const std::unique_ptr<float, decltype(&std::free)> memory(
      static_cast<float*>(std::malloc(kBytes)), &std::free);
  std::memset(memory.get(), 0, kBytes);
  const at::Tensor blob = torch::from_blob(memory.get(), {1536, 1024});
  int freed = 0;
  {
    const at::Tensor owned = torch::from_blob(
        std::malloc(kBytes), {1536, 1024},
        [&freed](void* address) {
          ++freed;
          std::free(address);
        },
        torch::kFloat);
    owned.fill_(0.5);
    for (const int step : run.steps(4)) {
      blob.add_(ballast.tensors()[step].narrow(0, 0, 1024), 0.5);
      memory.get()[step * 1000] = 7.0F;
      ballast.sweep();
      owned.add_(blob).mul_(0.5);
      const at::Tensor weight = ballast.tensors()[5].view({1024, 1024});
      run.tensor("product", blob.mm(weight).add_(owned));
    }
    run.tensor("owned", owned);
  }
  run.number("freed", freed);
  run.bytes("memory", memory.get(), kBytes);
  run.tensors("ballast", ballast.tensors());
}

SPILLWAY_AWKWARD_CASE(blob_alias, "a second storage over the memory of a first one") {
  Ballast ballast(14, 4);
  const at::Tensor original = here::randn({2048, 1024});
  const at::Tensor alias = torch::from_blob(original.data_ptr(), {1024, 2048}, device());
  const at::Tensor tail =
      torch::from_blob(original.data_ptr<float>() + 1'000'003, {900'000}, device());
  for (const int step : run.steps(4)) {
    ballast.sweep();
    alias.add_(ballast.tensors()[step].narrow(0, 0, 2048), 0.1);
    run.number("through original", original.sum());
    ballast.sweep();
    original.mul_(0.75);
    run.number("through alias", alias.sum());
    ballast.sweep();
    tail.neg_();
    run.tensor("original", original);
    run.tensor("alias", alias);
  }
}

SPILLWAY_AWKWARD_CASE(flat_parameters, "parameters and gradients as chunks of two flat buffers") {
  Mlp model = make_mlp(6);
  const std::vector<at::Tensor> parameters = model->parameters();
  const at::NoGradGuard no_grad;
  std::int64_t total = 0;
  for (const at::Tensor& each : parameters) {
    total += each.numel();
  }
  const at::Tensor values = zeros_part_by_part(total);
  const at::Tensor grads = zeros_part_by_part(total);
  const at::Tensor momentum = zeros_part_by_part(total);
  std::int64_t offset = 0;
  for (const at::Tensor& each : parameters) {
    const at::Tensor place = values.narrow(0, offset, each.numel()).view(each.sizes());
    place.copy_(each);
    each.set_data(place);
    each.mutable_grad() = grads.narrow(0, offset, each.numel()).view(each.sizes());
    offset += each.numel();
  }
  for (const int step : run.steps(3)) {
    const at::Tensor x = mlp_batch();
    const at::Tensor target = mlp_batch();
    {
      const at::AutoGradMode with_grad(true);
      const at::Tensor loss = torch::mse_loss(model->forward(x), target);
      loss.backward();
      run.number("loss", loss);
    }
    for (std::int64_t start = 0; start < total; start += 1 << 20) {
      const std::int64_t length = std::min<std::int64_t>(1 << 20, total - start);
      const at::Tensor grad = grads.narrow(0, start, length);
      momentum.narrow(0, start, length).mul_(0.9).add_(grad);
      values.narrow(0, start, length).sub_(momentum.narrow(0, start, length), 0.1);
      if (step < 2) {
        grad.zero_();
      }
    }
  }
  run.tensor("values", values);
  run.tensor("grads", grads);
  note_module(run, *model);
}

SPILLWAY_AWKWARD_CASE(zero_size_and_scalar, "empty and one-element tensors among large ones") {
  Ballast ballast(16, 4);
  at::Tensor scale = torch::tensor(0.5F, device()).requires_grad_();
  const at::Tensor nothing = here::empty({0, 1024}).requires_grad_();
  for (const int step : run.steps(4)) {
    ballast.sweep();
    const at::Tensor large = ballast.tensors()[step].view({1024, 1024});
    const at::Tensor joined = torch::cat({nothing * 2, large * scale, nothing}, 0);
    const at::Tensor none = large.narrow(0, 5, 0);
    const at::Tensor loss = joined.mean() + none.sum() + here::empty({0}).sum();
    loss.backward();
    run.number("loss", loss);
    run.tensor("scale", scale.grad());
    run.tensor("nothing", nothing.grad());
    run.number("item", large[3][4].item<float>());
    run.text("mean of nothing", std::isnan(none.mean().item<float>()) ? "nan" : "number");
    run.tensor("product", none.t().mm(none).narrow(0, 0, 0));
  }
}

SPILLWAY_AWKWARD_CASE(many_small_tensors, "thousands of small tensors beside a few large ones") {
  Ballast ballast(16, 4);
  std::vector<at::Tensor> small;
  for (int i = 0; i < 12'000; ++i) {
    small.push_back(here::full({64}, i % 97));
  }
  for (const int step : run.steps(3)) {
    for (std::size_t i = 0; i < small.size(); ++i) {
      small[i] = small[i] * 0.5 + small[(i * 7 + 1) % small.size()];
    }
    ballast.sweep();
    at::Tensor all = torch::stack(small);
    ballast.tensors()[step].narrow(0, 0, all.numel()).add_(all.view(-1), 0.001);
    run.tensor("all", all);
  }
  run.tensors("ballast", ballast.tensors());
}

SPILLWAY_AWKWARD_CASE(one_large_tensor, "one storage much larger than all others, used in pieces") {
  Ballast ballast(20, 2);
  const at::Tensor large = zeros_part_by_part(10'000'000);
  for ([[maybe_unused]] const int step : run.steps(4)) {
    for (std::int64_t start = 0; start + 500'000 <= large.numel(); start += 700'000) {
      const at::Tensor piece = large.narrow(0, start, 500'000);
      const at::Tensor other = ballast.tensors()[(start / 700'000) % 20].narrow(0, 0, 500'000);
      piece.add_(other).mul_(0.5);
      other.add_(piece, 0.1);
    }
    ballast.sweep();
    run.tensor("piece", large.narrow(0, 1'234'567, 400'000));
  }
  run.tensor("large", large);
}

SPILLWAY_AWKWARD_CASE(lazy_clone, "copy-on-write clones part when one of them is written") {
  Ballast ballast(12, 4);
  const at::Tensor original = here::randn({1024, 1024});
  std::vector<at::Tensor> clones;
  for (const int step : run.steps(4)) {
    clones.push_back(at::_lazy_clone(original));
    ballast.sweep();
    clones.back().add_(step);
    const at::Tensor kept = at::_lazy_clone(original);
    original.mul_(0.5);
    ballast.sweep();
    run.tensor("kept", kept);
    run.tensor("original", original);
  }
  run.tensors("clone", clones);
}

SPILLWAY_AWKWARD_CASE(mapped_file, "tensors over a mapped file, shared and private") {
  Ballast ballast(16, 4);
  constexpr std::int64_t kCount = 1 << 20;
  const std::string path = run.file("mapped");
  {
    const at::Tensor shared =
        torch::from_file(path, /*shared=*/true, /*size=*/kCount, torch::kFloat);
    shared.copy_(ballast.tensors()[0]);
    for (const int step : run.steps(3)) {
      ballast.sweep();
      shared.add_(ballast.tensors()[step], 0.5);
    }
    run.tensor("shared", shared);
  }
  const at::Tensor own = torch::from_file(path, /*shared=*/false, /*size=*/kCount, torch::kFloat);
  own.mul_(2);
  ballast.sweep();
  run.tensor("private", own);
  run.tensor("file", torch::from_file(path, true, kCount, torch::kFloat));
}

SPILLWAY_AWKWARD_CASE(early_death, "addresses reused at once after storages died") {
  Ballast ballast(12, 4);
  for (const int step : run.steps(4)) {
    std::vector<at::Tensor> row;
    for (int i = 0; i < 24; ++i) {
      at::Tensor fresh = here::full({(3 + i % 5) * 150'000}, i + step, torch::kFloat);
      if (i % 3 == 0) {
        row.push_back(fresh);
      }
      fresh = torch::Tensor();
      const at::Tensor zeros = here::zeros({(4 + i % 3) * 140'000});
      run.number("zeros", zeros.abs().max());
      if (row.size() > 4) {
        row.erase(row.begin());
      }
    }
    ballast.sweep();
    run.tensors("row", row);
  }
  run.tensors("ballast", ballast.tensors());
}

}  // namespace awkward
