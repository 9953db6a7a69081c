// What draws from the default generator: it must be where the operators would have left it.

#include <ATen/ATen.h>

#include <vector>

#include "phantom_calls.h"

namespace spillway::phantoms {
namespace {

TEST_F(Phantoms, Dropouts) {
  const auto heads = [] { return leaf({2, 4, 32, 16}); };
  check({
      {"aten::bernoulli_.float",
       [] {
         backward(at::dropout(leaf({32, 64}), 0.3, true));
       }},
      {"aten::native_dropout",
       [] {
         at::native_dropout(leaf({32, 64}), 0.0, true);
       }},
      {"aten::native_dropout",
       [] {
         at::native_dropout(leaf({32, 64}), 1.0, true);
       }},
      {"aten::native_dropout",
       [] {
         at::native_dropout(leaf({32, 64}), 0.3, false);
       }},
      {"aten::bernoulli_.float",
       [] {
         backward(at::feature_dropout(leaf({4, 8, 6, 6}), 0.3, true));
       }},
      {"aten::bernoulli_.float",
       [] {
         backward(at::alpha_dropout(leaf({32, 64}), 0.3, true));
       }},
      {"aten::bernoulli_.float",
       [&] { backward(at::scaled_dot_product_attention(heads(), heads(), heads(), {}, 0.2)); }},
  });
}

TEST_F(Phantoms, NormalNumbers) {
  std::vector<Case> cases;
  for (const std::int64_t size : {0, 1, 3, 15, 16, 17, 1000}) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      cases.push_back({"aten::normal_", [=] { at::empty({size}, type).normal_(); }});
      cases.push_back({"aten::randn", [=] { at::randn({size}, type); }});
      cases.push_back({"aten::normal_", [=] { at::empty({size, 2}, type).t().normal_(1, 2); }});
    }
  }
  cases.push_back({"aten::normal_", [] { at::empty({8, 64}).slice(1, 0, 64, 2).normal_(); }});
  cases.push_back({"aten::randn_like", [] { at::randn_like(at::zeros({33})); }});
  cases.push_back({"aten::normal.float_Tensor", [] { at::normal(0.5, at::rand({33})); }});
  cases.push_back({"aten::normal.Tensor_float", [] { at::normal(at::rand({33}), 0.5); }});
  cases.push_back({"aten::log_normal_", [] { at::empty({33}).log_normal_(); }});
  check(cases);
}

TEST_F(Phantoms, OtherDistributions) {
  const Tensor x = at::zeros({7, 33});
  check({
      {"aten::uniform_", [&] { x.uniform_(); }},
      {"aten::uniform_", [&] { x.t().slice(0, 3).uniform_(-2, 5); }},
      {"aten::uniform_", [&] { at::empty({100}, at::kDouble).uniform_(); }},
      {"aten::rand",
       [] {
         at::rand({100, 3});
       }},
      {"aten::rand_like", [&] { at::rand_like(x); }},
      {"aten::random_", [&] { x.random_(); }},
      {"aten::random_.to", [&] { x.random_(10); }},
      {"aten::random_.from", [] { at::empty({50}, at::kLong).random_(0, std::int64_t{1} << 40); }},
      {"aten::randint", [] { at::randint(100, {50}, at::kLong); }},
      {"aten::randint.low", [] { at::randint(5, 100, {50}, at::kLong); }},
      {"aten::randint_like", [&] { at::randint_like(x, 9); }},
      {"aten::randperm", [] { at::randperm(1000); }},
      {"aten::randperm", [] { at::randperm(1); }},
      {"aten::bernoulli",
       [] {
         at::bernoulli(at::rand({9, 31}));
       }},
      {"aten::bernoulli.p",
       [] {
         at::bernoulli(at::rand({9, 31}), 0.2);
       }},
      {"aten::bernoulli_.Tensor",
       [&] {
         x.bernoulli_(at::rand({7, 33}));
       }},
      {"aten::exponential_", [&] { x.exponential_(2); }},
      {"aten::geometric_", [&] { x.geometric_(0.4); }},
      {"aten::cauchy_", [&] { x.cauchy_(); }},
  });
}

TEST_F(Phantoms, ManyNumbers) {
  std::vector<Case> cases;
  for (const std::int64_t more : {0, 39}) {
    const std::int64_t size = (std::int64_t{3} << 19) + more;
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      const auto empty = [=] { return at::empty({size}, type); };
      cases.push_back({"aten::uniform_", [=] { empty().uniform_(-2, 5); }});
      cases.push_back({"aten::normal_", [=] { empty().normal_(1, 2); }});
      cases.push_back({"aten::bernoulli_.float", [=] { empty().bernoulli_(0.3); }});
      cases.push_back({"aten::exponential_", [=] { empty().exponential_(2); }});
      cases.push_back({"aten::log_normal_", [=] { empty().log_normal_(); }});
      cases.push_back({"aten::cauchy_", [=] { empty().cauchy_(); }});
      cases.push_back({"aten::geometric_", [=] { empty().geometric_(0.4); }});
      cases.push_back({"aten::random_", [=] { empty().random_(); }});
      cases.push_back({"aten::rand", [=] { at::rand({2, size}, type); }});
      cases.push_back({"aten::randn", [=] { at::randn({size, 2}, type); }});
      cases.push_back({"aten::normal_", [=] { at::empty({size, 2}, type).t().normal_(); }});
    }
    const std::int64_t far = std::int64_t{1} << 40;
    cases.push_back({"aten::random_.from", [=] { at::empty({size}, at::kLong).random_(0, far); }});
    cases.push_back({"aten::randint", [=] { at::randint(100, {size}); }});
    cases.push_back({"aten::randint.low", [=] { at::randint(-far, far, {3, size}); }});
    cases.push_back({"aten::zeros", [=] { at::zeros({size, 3}, at::kHalf); }});
    cases.push_back({"aten::full", [=] { at::full({size}, 2.5); }});
  }
  check(cases);
}

TEST_F(Phantoms, LargeTensorsByElement) {
  const std::int64_t size = (std::int64_t{1} << 18) + 13;
  const Tensor x = at::rand({size, 2, 3}), y = at::rand({size, 2, 3});
  const Tensor narrow = at::rand({1, size * 6}).to(at::kBFloat16);
  check({
      {"aten::mul.Scalar", [&] { at::mul(x, 0.02); }},
      {"aten::mul.Scalar", [&] { at::mul(narrow, 3); }},
      {"aten::add.Tensor", [&] { at::add(x, y, 0.5); }},
      {"aten::add.Tensor", [&] { at::add(x, y.select(0, 1).select(0, 1)); }},  // A row.
      {"aten::add.Tensor", [&] { at::add(x.transpose(0, 1), y.transpose(0, 1)); }},
      {"aten::erfinv", [&] { at::erfinv(x); }},
      {"aten::lt.Scalar", [&] { at::lt(x, 0.9); }},
      {"aten::where.self", [&] { at::where(x < y, x, y.to(at::kDouble)); }},
      {"aten::clone", [&] { x.clone(); }},
      {"aten::clone", [&] { x.transpose(1, 2).clone(); }},
      {"aten::clone", [&] { narrow.clone(at::MemoryFormat::Contiguous); }},
      {"aten::clone",
       [&] {
         narrow.as_strided({1, size}, {1, 1}).clone();
       }},
      {"aten::zeros_like", [&] { at::zeros_like(x); }},
      {"aten::randn_like", [&] { at::randn_like(x); }},
      {"aten::rand_like",
       [&] {
         at::rand_like(narrow.expand({4, -1}));
       }},
  });
}

TEST_F(Phantoms, NumbersThatValuesDecideAreRefused) {
  check_refused("draws as many random numbers as its arguments' values tell",
                {
                    {"aten::poisson", [] { at::poisson(at::rand({30}) * 9); }},
                    {"aten::multinomial",
                     [] {
                       at::multinomial(at::rand({4, 9}), 3);
                     }},
                    {"aten::_standard_gamma", [] { at::_standard_gamma(at::rand({30})); }},
                    {"aten::_sample_dirichlet",
                     [] {
                       at::_sample_dirichlet(at::rand({3, 5}));
                     }},
                    {"aten::binomial", [] { at::binomial(at::full({30}, 9.F), at::rand({30})); }},
                    {"aten::rrelu_with_noise",
                     [] {
                       Tensor noise = at::empty({30});
                       at::rrelu_with_noise(rnd({30}), noise, 0.1, 0.3, true);
                     }},
                });
}

}  // namespace
}  // namespace spillway::phantoms
