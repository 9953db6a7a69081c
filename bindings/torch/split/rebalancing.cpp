#include "rebalancing.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "first_rank.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/log.h"
#include "spillway/transport/survey/link_survey.h"

namespace spillway::split {
namespace {

/// The first step of a program, and the first one with other cuts, take longer than those behind.
constexpr std::uint64_t kWarmUp = 1;
constexpr std::uint64_t kAsBefore = ~std::uint64_t{0};

transport::Tag tag_of(std::uint64_t step, bool is_decision) {
  return {transport::Stream::kControl, kStepNumber + 2 * step + (is_decision ? 1 : 0)};
}

/// Of a message between two ranks, by what was measured: of the first ranks of two hosts for all of
/// these, and of neighbours for all of one host.
TransferRate slowest_rate(const std::vector<transport::MeasuredLink>& links,
                          const std::vector<std::string>& hosts, Rank a, Rank b) {
  const std::string& from = hosts[a.value()];
  const std::string& to = hosts[b.value()];
  TransferRate slowest = TransferRate::unlimited();
  for (const transport::MeasuredLink& link : links)
    if (std::minmax(hosts[link.from], hosts[link.to]) == std::minmax(from, to))
      slowest = std::min(slowest, link.rate);
  return slowest;
}

/// Of each border between stages, for the slowest of the ranks that compute them by turns.
std::vector<TransferRate> link_rates(transport::Transport& transport,
                                     const std::vector<std::string>& hosts,
                                     const pipeline::Placement& placement) {
  const SteadyClock clock;
  const auto links = transport::survey_links(transport, hosts, {clock, clock});
  std::vector<TransferRate> rates(placement.stages() - 1, TransferRate::unlimited());
  for (std::uint32_t stage = 1; stage < placement.stages(); ++stage)
    for (std::uint32_t turn = 0; turn < placement.turns(); ++turn) {
      const Rank a = placement.rank_of(stage - 1, turn), b = placement.rank_of(stage, turn);
      if (a != b) rates[stage - 1] = std::min(rates[stage - 1], slowest_rate(links, hosts, a, b));
    }
  return rates;
}

/// On other ranks than the first one, which decide nothing: any.
std::vector<Bytes> budgets_of_all(transport::Transport& transport, pipeline::Job& job, Bytes mine) {
  std::vector<Bytes> budgets =
      gathered(transport, kBudget, mine, [&](const device::Event& event, Rank peer) {
        job.wait(event, peer, [] { return std::string("the budget of a rank"); });
      });
  budgets.resize(transport.ranks());
  return budgets;
}

pipeline::BalancerOptions options_of(transport::Transport& transport, pipeline::Job& job,
                                     const std::vector<std::string>& hosts,
                                     const pipeline::Placement& placement,
                                     std::vector<double> in_flight,
                                     const runtime::Runtime& runtime) {
  pipeline::BalancerOptions options;
  options.budgets = budgets_of_all(transport, job, runtime.budget());
  options.in_flight = std::move(in_flight);
  options.link_rates = link_rates(transport, hosts, placement);
  return options;
}

}  // namespace

Rebalancing::Rebalancing(transport::Transport& transport, pipeline::Job& job,
                         const std::vector<std::string>& hosts,
                         const pipeline::Placement& placement, std::vector<double> in_flight,
                         const runtime::Runtime& runtime)
    : transport_(transport),
      job_(job),
      stages_(placement.stages()),
      options_(options_of(transport, job, hosts, placement, std::move(in_flight), runtime)),
      balancer_(placement, options_),
      counts_from_(kWarmUp) {}

void Rebalancing::send(Rank to, transport::Tag tag, const void* bytes, std::size_t size) {
  while (!sent_.empty() && sent_.front().event.is_done()) sent_.pop_front();
  Sent& sent = sent_.emplace_back();
  sent.bytes.resize(size);
  std::memcpy(sent.bytes.data(), bytes, size);
  sent.event = transport_.send(to, tag, device::host_span_of_all(sent.bytes));
}

void Rebalancing::measured(std::uint64_t step, std::vector<pipeline::UnitSeconds> seconds) {
  const std::lock_guard lock(mutex_);
  if (transport_.rank() != kFirst) {
    send(kFirst, tag_of(step, false), seconds.data(), seconds.size() * sizeof(seconds.front()));
    return;
  }
  for (Gathered& one : gathered_) {
    if (one.step != step) continue;
    one.measured.seconds.front() = std::move(seconds);
    one.has_own = true;
  }
}

void Rebalancing::train_on_gpus(std::uint64_t step, Bytes budget) {
  std::vector<Bytes> budgets = budgets_of_all(transport_, job_, budget);
  is_measured_ = transport_.rank() != kFirst ||
                 std::find(budgets.begin(), budgets.end(), Bytes()) == budgets.end();
  if (is_measured_)
    balancer_.set_budgets(std::move(budgets));
  else
    log_info("the model stays as it is cut (--rebalance): a rank's GPU is not served, so what "
             "operators take there is not measured");
  balancer_.forget_model();
  late_steps_ = 1;
  counts_from_ = step;
}

void Rebalancing::gather(std::uint64_t step, const pipeline::Ownership& ownership) {
  Gathered& made = gathered_.emplace_back();
  made.step = step;
  made.model = ownership.model();
  made.late_steps = late_steps_;
  const std::uint64_t ended = std::exchange(micro_batches_, ownership.micro_batch() + 1);
  made.measured.micro_batches = late_steps_ > 0 ? ended : micro_batches_;
  made.measured.seconds.assign(transport_.ranks(),
                               std::vector<pipeline::UnitSeconds>(ownership.units().count()));
  for (std::uint32_t rank = 1; rank < transport_.ranks(); ++rank)
    made.events.push_back(transport_.receive(
        Rank(rank), tag_of(step, false), device::host_span_of_all(made.measured.seconds[rank])));
}

void Rebalancing::take_measured() {
  while (!gathered_.empty()) {
    Gathered& one = gathered_.front();
    const bool has_come =
        one.has_own && std::all_of(one.events.begin(), one.events.end(),
                                   [](const auto& event) { return event.is_done(); });
    if (!has_come) return;
    if (one.step > counts_from_ + one.late_steps && one.model == model_)
      balancer_.add(std::move(one.measured));
    gathered_.pop_front();
  }
}

/// Of another one nothing is known, and its first step warms up.
void Rebalancing::look_at_model(std::uint64_t step, std::uint64_t model) {
  if (std::exchange(model_, model) == model) return;
  balancer_.forget_model();
  awaits_measure_ = false;
  counts_from_ = step - 1 + kWarmUp;
}

Rebalancing::Cuts Rebalancing::decide(std::uint64_t step, const pipeline::Ownership& ownership) {
  Cuts decided(stages_, kAsBefore);
  if (!is_measured_ || step < counts_from_ || !balancer_.knows_enough()) return decided;
  const auto recut = balancer_.look(ownership.units().units(ownership.directory()),
                                    ownership.units().borders(), ownership.first_of_stage());
  if (std::exchange(awaits_measure_, false)) moves_.seconds_after = balancer_.slowest_seconds();
  if (!recut) return decided;
  std::string slow;
  for (std::uint32_t rank = 0; rank < transport_.ranks(); ++rank)
    if (balancer_.slowdown_of(Rank(rank)) > 1.2)
      slow += message("; rank {} takes {} longer than at first", rank,
                      percent_text(balancer_.slowdown_of(Rank(rank)) - 1.0));
  const TransferRate link =
      *std::min_element(options_.link_rates.begin(), options_.link_rates.end());
  log_info("before step {} {} move between ranks, with {}, over links that carried {}/s or more at "
           "the start: the slowest stage takes {} for a micro-batch, and is to take {}{}",
           step + kAhead + 1, counted(recut->units, "parameter"), recut->bytes,
           Bytes(static_cast<std::uint64_t>(link.bytes_per_second())),
           seconds_text(recut->seconds_before), seconds_text(recut->seconds_after), slow);
  if (moves_.times++ == 0) moves_.seconds_before = balancer_.slowest_seconds();
  moves_.seconds_forecast = recut->seconds_after;
  moves_.seconds_after.reset();
  awaits_measure_ = true;
  moves_.parameters += recut->units;
  moves_.bytes += recut->bytes.count();
  balancer_.forget();
  counts_from_ = step + kAhead + kWarmUp;
  decided.assign(recut->first_of_stage.begin(), recut->first_of_stage.end());
  return decided;
}

std::optional<std::vector<std::size_t>> Rebalancing::begin_step(
    std::uint64_t step, const pipeline::Ownership& ownership) {
  Coming& next = coming_.emplace_back();
  next.model = ownership.model();
  if (transport_.rank() == kFirst) {
    const std::lock_guard lock(mutex_);
    look_at_model(step, next.model);
    take_measured();
    next.moves_before = moves_;
    next.cuts = decide(step, ownership);
    for (std::uint32_t rank = 1; rank < transport_.ranks(); ++rank)
      send(Rank(rank), tag_of(step, true), next.cuts.data(), stages_ * sizeof(next.cuts.front()));
    gather(step, ownership);
  } else {
    next.cuts.resize(stages_);
    next.event =
        transport_.receive(kFirst, tag_of(step, true), device::host_span_of_all(next.cuts));
  }
  if (coming_.size() <= kAhead) return std::nullopt;
  const Coming now = std::move(coming_.front());
  coming_.pop_front();
  if (transport_.rank() != kFirst)
    job_.wait(now.event, kFirst, [] { return std::string("how the model is cut"); });
  if (now.cuts.front() == kAsBefore) return std::nullopt;
  if (now.model != ownership.model()) {
    if (transport_.rank() == kFirst) {
      log_info("before step {} nothing moves: the program trains another model", step + 1);
      moves_ = now.moves_before;
    }
    return std::nullopt;
  }
  return std::vector<std::size_t>(now.cuts.begin(), now.cuts.end());
}

}  // namespace spillway::split
