#include "spillway/runtime/reporting/summary.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"

namespace spillway::runtime {
namespace {

constexpr double kNoticeableShare = 0.03;   // Of the run: below it there is nothing to advise.
constexpr std::uint64_t kStepsToLearn = 3;  // Before the first plan can be there.
constexpr double kBusyShare = 0.8;          // From here on the disk is what a run waits for.
constexpr double kSteadySeconds = 60.0;     // A shorter run tells nothing about a day.
constexpr double kNoticeableFactor = 1.5;   // Between what a plan was told and what a run saw.
constexpr std::size_t kStallsShown = 3;
constexpr std::uint64_t kSteadySteps = 10;  // Before that plans are made of the first, slow steps.

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

double share_of_run(const RunStatistics& s, double seconds) {
  return s.run_seconds > 0.0 ? seconds / s.run_seconds : 0.0;
}

std::string moved(const RunStatistics& s) {
  if (s.memory.spilled == Bytes(0) && s.memory.fetched == Bytes(0)) return "nothing was swapped";
  std::string text = message("{} out, {} in", s.memory.spilled, s.memory.fetched);
  if (s.steps > 0)
    text +=
        message(" ({} and {} per step)", s.memory.spilled / s.steps, s.memory.fetched / s.steps);
  if (s.memory.left_clean > Bytes(0))
    text += message("; {} left without a write", s.memory.left_clean);
  return text;
}

std::string where(const RunStatistics& s) {
  std::string text = message("{}; busy {}", s.store.empty() ? joined(s.directories) : s.store,
                             seconds_text(seconds(s.memory.store.busy_time)));
  const swap::HostTierReport& host = s.memory.store.host;
  if (host.capacity > Bytes())
    text += message("; {} into host memory (at most {} at once) and {} back, {} on to the disks",
                    host.written, host.peak, host.read, host.demoted);
  if (s.rates) text += message("; about {} out, {} in", s.rates->write, s.rates->read);
  return text;
}

// How the writes compare with what drives are rated for. Flash wears by writing.
std::string worn(const RunStatistics& s) {
  constexpr double kDaySeconds = 86400.0;
  const double per_day =
      static_cast<double>(s.all_disk_written().count()) / s.run_seconds * kDaySeconds;
  return message("{} a day at this pace; disks rated for {} of writes (--endurance) would last {} "
                 "of training",
                 Bytes(static_cast<std::uint64_t>(per_day)), s.endurance,
                 days_text(static_cast<double>(s.endurance.count()) / per_day));
}

std::string lost(const RunStatistics& s) {
  if (s.stall_seconds() <= 0.0) return "never";
  // Several threads may wait at once.
  const std::string of_run =
      s.stall_seconds() > s.run_seconds
          ? message("{} in all threads together", seconds_text(s.stall_seconds()))
          : message("{} of {} ({})", seconds_text(s.stall_seconds()), seconds_text(s.run_seconds),
                    percent_text(share_of_run(s, s.stall_seconds())));
  return message("{}: {} for tensors to come in, {} for room, {} in {}", of_run,
                 seconds_text(seconds(s.memory.fetch_wait)),
                 seconds_text(seconds(s.memory.room_wait)),
                 seconds_text(seconds(s.memory.fault_wait)), counted(s.memory.faults, "trap"));
}

std::string learned(const RunStatistics& s) {
  if (!s.prefetch) return "nothing: --prefetch is off";
  if (!s.not_reported.empty()) return message("not reported: {}", s.not_reported);
  return message("{} of step; {} of {} did not match the plan", counted(s.learned.shapes, "kind"),
                 s.learned.deviations, counted(s.ops, "operator"));
}

template <typename Value>
bool is_off(Value told, Value seen) {
  return told > seen * kNoticeableFactor || seen > told * kNoticeableFactor;
}

// "1.02 s per step by spillway, measured 1.05 s (+2.9 %, median of …); at most 702 MiB in …"
std::string planned(const RunStatistics& s) {
  std::string text = message("{} per step", seconds_text(s.learned.planned_step_seconds()));
  if (!s.learned.strategy.empty()) text += message(" by {}", s.learned.strategy);
  if (s.given_plan && s.given_plan->steps > 0)
    text += message(" ({} when the plan was made)", seconds_text(s.given_plan->step_seconds));
  text +=
      s.learned.followed_step_seconds() > 0.0
          ? message(", measured {} ({}, median of the latest that followed it)",
                    seconds_text(s.learned.followed_step_seconds()),
                    signed_percent_text(
                        s.learned.followed_step_seconds() / s.learned.planned_step_seconds() - 1.0))
          : ", but no step went as planned from its first operator to the last";
  if (s.learned.followed_peak > Bytes())
    text += message("; in memory {}, measured {}", s.planned_peak(), s.learned.followed_peak);
  return text;
}

// What became of the plan that the run was given.
std::string given(const RunStatistics::GivenPlan& plan, std::uint64_t steps) {
  if (plan.steps > 0)
    return message("{} was followed in {} of {}{}", plan.file, plan.steps,
                   counted(plan.all_steps, "step"),
                   steps > plan.all_steps ? " that another one came after" : "");
  if (!plan.misfit.empty())
    return message("{}; it was followed in none of {}", plan.misfit,
                   counted(plan.all_steps, "step"));
  if (plan.all_steps == 0) return message("{} was not followed: no step has ended", plan.file);
  return message(
      "{} was followed in none of {}: none went as planned from its first operator to the last",
      plan.file, counted(plan.all_steps, "step"));
}

// Empty where the plan uses about all of the memory that there is, or nothing had to move.
std::string less_memory(const RunStatistics& s) {
  constexpr double kNoticeable = 1.05;
  if (!s.given_plan || s.given_plan->steps == 0 || s.memory.spilled + s.memory.dropped == Bytes())
    return {};
  const Bytes of_use = std::min(s.budget, s.memory.live_peak);
  if (static_cast<double>(of_use.count()) <
      kNoticeable * static_cast<double>(s.given_plan->budget.count()))
    return {};
  return message(
      "it was made for {} and swaps or recomputes what does not fit into these, although "
      "there are {}",
      s.given_plan->budget, s.budget);
}

// Empty where the disk is about as fast as the plan was told.
std::string other_rates(const RunStatistics& s) {
  if (!s.rates || !s.given_plan || s.given_plan->steps == 0) return {};
  if (s.memory.store.host.capacity > Bytes())
    return {};  // What was seen is of both tiers together.
  const profile::TransferRates& told = s.given_plan->rates;
  if (!is_off(told.write, s.rates->write) && !is_off(told.read, s.rates->read)) return {};
  return message("it was made for {} out and {} in, this run saw {} and {}: a plan for these rates "
                 "may be faster (spillway plan --rates or --link-out and --link-in)",
                 told.write, told.read, s.rates->write, s.rates->read);
}

// Empty where steps took about as long as the plan that they followed says.
std::string other_times(const RunStatistics& s) {
  const double measured = s.learned.followed_step_seconds();
  if (!s.given_plan || s.given_plan->steps == 0 || measured <= 0.0) return {};
  for (const double told : {s.given_plan->step_seconds, s.learned.planned_step_seconds()})
    if (told > 0.0 && is_off(told, measured))
      return message(
          "steps that followed the plan took {}, and it says {}: it was made for another "
          "machine, other links or another load; record a profile here (spillway "
          "profile) and plan again",
          seconds_text(measured), seconds_text(told));
  return {};
}

std::string bound(const RunStatistics& s) {
  return message(
      "{} per step: no plan is faster with this memory and the times of operators and "
      "disk that the planned time is made of; that is {} above it",
      seconds_text(s.learned.bound_step_seconds()),
      percent_text(s.learned.planned_step_seconds() / s.learned.bound_step_seconds() - 1.0));
}

std::string recompute_text(const RunStatistics& s) {
  std::string text =
      message("{} recomputed in {}, which brought back {} that had been dropped",
              counted(s.replays, "operator"), seconds_text(s.replay_seconds), s.memory.dropped);
  if (s.unplanned_replays > 0)
    text += message("; {} of them in steps that did not match the plan", s.unplanned_replays);
  return text;
}

// Of a GPU, or of a program that used none.
std::string updated(const RunStatistics& s) {
  if (s.device_name.empty())
    return "nothing in host memory: --update host is for GPUs, and the program used none";
  if (s.memory.worked_on_host == Bytes())
    return "nothing in host memory: no optimizer wrote tensors that can leave the GPU by operators "
           "that the CPU can do, so --update host changed nothing";
  std::string text = message("by the CPU, which rounds differently, on {} of pages in host memory",
                             s.memory.worked_on_host);
  if (s.steps > 0) text += message(" ({} per step)", s.memory.worked_on_host / s.steps);
  return text + message("; waited {} for these", seconds_text(seconds(s.memory.host_wait)));
}

std::string verified(const RunStatistics& s) {
  const VerifiedReplays& v = s.verified;
  std::string text;
  if (v.equal_kinds + v.differing_kinds > 0)
    text = message("{} of call of {} gave the same bits in a second run; ",
                   counted(v.equal_kinds, "kind"), counted(v.operators.size(), "operator"));
  if (v.differing_kinds > 0)
    text += message("{} did not, and are not run again; ", v.differing_kinds);
  const swap::StoreReport& store = s.memory.store;
  if (store.checked == 0) {
    const bool has_left = s.memory.spilled + s.memory.left_clean > Bytes();
    return text + (has_left ? "no page was read from a disk, where bytes might change"
                            : "no page has left memory, so none was compared");
  }
  text += message("{} of pages from the store, {} with wrong bytes", counted(store.checked, "read"),
                  store.wrong);
  if (store.recovered > 0)
    text += message("; {} were wrong at first and right when read again", store.recovered);
  return text;
}

std::string stalled(const StallCause& cause) {
  return message("{} in {}: {} for its inputs, {} for room", seconds_text(seconds(cause.total())),
                 cause.op, seconds_text(seconds(cause.for_inputs)),
                 seconds_text(seconds(cause.for_room)));
}

std::string stalled(const ValueStall& stall) {
  return message("{} for {} of {}{}{}: {} to come in, {} for room",
                 seconds_text(seconds(stall.total())), stall.value, stall.bytes,
                 stall.made_by.empty() ? "" : " from ", stall.made_by,
                 seconds_text(seconds(stall.for_inputs)), seconds_text(seconds(stall.for_room)));
}

// As `--budget` takes it.
std::string budget_option(const RunStatistics& s, Bytes size) {
  return s.device_name.empty() ? as_option(size) : message("{}={}", s.device, as_option(size));
}

// With how much less it would run, too.
std::string with_less(const RunStatistics& s) {
  if (!s.has_whole_step || s.smallest_budget == Bytes() || s.smallest_budget >= s.budget) return {};
  // The least that a run takes may be more than its tensors do.
  if (s.smallest_budget >= s.memory.live_peak)
    return message("; {} is enough", budget_option(s, s.smallest_budget));
  // Plans of files keep in memory what is too small for their profiles to list.
  return message("; with less memory, down to {} without --plan, it runs more slowly",
                 budget_option(s, s.smallest_budget));
}

// Within its first step a run knows what has run alone: rerun with that it would name more.
std::string larger_budget(const RunStatistics& s) {
  if (s.smallest_budget <= s.budget) return "allow more memory";
  std::string text = message("give a budget of at least {}", budget_option(s, s.smallest_budget));
  if (!s.has_whole_step)
    text += message(
        ", below which what has run does not fit; the first step did not end, and the rest of it "
        "may need more: {}",
        s.is_budget_auto ? "give several times as much, on a machine with more memory if need be"
                         : "a run without --budget tells how much");
  return text;
}

// What would help most, in one sentence.
std::string advice(const RunStatistics& s) {
  const bool is_held_up = share_of_run(s, s.stall_seconds()) > kNoticeableShare;
  // The refusal itself was told right before.
  if (s.refusal.cause == RefusalCause::kBudget) return larger_budget(s) + s.address_limit;
  if (s.refusal.cause == RefusalCause::kAddresses)
    return remedy(s.refusal.cause) + s.why_no_addresses;
  if (s.refusal.cause != RefusalCause::kNone) return remedy(s.refusal.cause);
  if (s.memory.live_peak == Bytes(0)) return "nothing; no tensor was made";
  if (!less_memory(s).empty() && s.memory.live_peak <= s.budget)
    return message("leave out --plan: all tensors fit into these {}", s.budget);
  if (!less_memory(s).empty())
    return message("make a plan for these {}: spillway plan PROFILE --budget {}MiB --out FILE",
                   s.budget, s.budget / 1_MiB);
  if (s.memory.live_peak <= s.budget && s.memory.spilled == Bytes(0) && s.ranks)
    return "nothing; everything fitted";
  if (s.memory.live_peak <= s.budget && s.memory.spilled == Bytes(0))
    return s.steps == 0
               ? "nothing; everything fitted until the end, and no step was seen"
               : "nothing; everything fitted, and this trainer does not depend on Spillway here" +
                     with_less(s);
  if (s.given_plan && !s.given_plan->misfit.empty())
    return "the plan fits no step of this run: record one (spillway profile) and plan again, or "
           "leave "
           "out --plan";
  if (is_held_up && !s.prefetch) return "leave --prefetch on: tensors came in on demand only";
  if (is_held_up && share_of_run(s, seconds(s.memory.store.busy_time)) > kBusyShare)
    return "the disk was the limit: allow more memory, or add a disk (--nvme DIR1,DIR2)";
  if (is_held_up && s.ops > 0 && s.learned.deviations * 10 > s.ops)
    return "steps hardly repeat, so little could be fetched ahead: allow more memory";
  if (is_held_up && seconds(s.memory.fault_wait) > s.stall_seconds() / 2)
    return "the trainer touches tensors outside of operators; keep those small or read them at "
           "once";
  if (is_held_up && s.steps <= kStepsToLearn && s.learned.plan_steps == 0)
    return s.given_plan ? "run more steps: in these the step was still learned, and none could "
                          "follow the plan"
                        : "run more steps: in these the step was still learned, and nothing could "
                          "be planned";
  if (is_held_up) return "allow more memory: operators waited for each other's room";
  const std::string off = other_times(s);
  return off.empty() ? "nothing" + with_less(s) : off;
}

// "14, median of those timed: 2.16 s"
std::string steps_text(const RunStatistics& s) {
  if (s.steps > 0 && !s.has_whole_step)
    return message("{} begun, and none came to its end", s.steps);
  if (s.step_seconds_median <= 0.0) return message("{}", s.steps);
  // Of long runs the latest were, see `step_seconds_median` of the statistics file.
  return message("{}, median of those timed: {}", s.steps, seconds_text(s.step_seconds_median));
}

class Screen {
 public:
  explicit Screen(const std::string& rank)
      : begin_(rank.empty() ? "[spillway] " : "[spillway " + rank + "] ") {}

  void line(std::string_view word, const std::string& text) {
    constexpr std::size_t kColumn = 9;
    out_ << begin_ << word;
    for (std::size_t i = word.size(); i < kColumn; ++i) out_ << ' ';
    out_ << text << '\n';
  }
  std::string text() const { return out_.str(); }

 private:
  std::string begin_;
  std::ostringstream out_;
};

void show_wear(Screen& screen, const RunStatistics& s) {
  if (s.all_disk_written() > Bytes(0) && s.endurance > Bytes(0) && s.run_seconds > kSteadySeconds)
    screen.line("wear", worn(s));
}

/// What moved, how long that took, and what was known of it before.
void show_work(Screen& screen, const RunStatistics& s) {
  screen.line("steps", steps_text(s));
  screen.line("swapped", moved(s));
  if (s.memory.spilled > Bytes(0)) screen.line("to", where(s));
  show_wear(screen, s);
  if (s.replays > 0) screen.line("replayed", recompute_text(s));
  if (s.updates_on_host && (s.devices.empty() || !s.device_name.empty()))
    screen.line("updated", updated(s));
  if (s.verify) screen.line("verified", verified(s));
  screen.line("stalled", lost(s));
  if (share_of_run(s, s.stall_seconds()) > kNoticeableShare) {
    for (std::size_t i = 0; i < std::min(kStallsShown, s.stalls.size()); ++i)
      screen.line(i == 0 ? "mostly" : "", stalled(s.stalls[i]));
    for (std::size_t i = 0; i < std::min(kStallsShown, s.learned.stalls.size()); ++i)
      screen.line("", stalled(s.learned.stalls[i]));
  }
  if (s.learned.shapes > 0 || !s.prefetch || !s.not_reported.empty())
    screen.line("learned", learned(s));
}

void show_plans(Screen& screen, const RunStatistics& s) {
  if (s.given_plan) screen.line("plan", given(*s.given_plan, s.steps));
  for (const std::string& why : {less_memory(s), other_rates(s)})
    if (!why.empty()) screen.line("", why);
  // A plan that was given is not made of the first steps.
  const bool is_given =
      s.given_plan && s.given_plan->steps > 0 && s.learned.followed_step_seconds() > 0.0;
  if (s.learned.planned_step_seconds() > 0.0 && (s.steps >= kSteadySteps || is_given)) {
    screen.line("planned", planned(s));
    if (s.learned.bound_step_seconds() > 0.0) screen.line("bound", bound(s));
  }
}

void show_host(Screen& screen, const RunStatistics& s) {
  screen.line("needed",
              message("{}  of tensors alive at once{}, wherever they were, in whole pages{}",
                      s.memory.live_peak, s.has_whole_step ? "" : " so far",
                      s.has_whole_step ? ""
                                       : "; no step came to its end, which may need "
                                         "more"));
  screen.line("budget", message("{}  {}", s.budget, s.budget_origin));
  screen.line("peak",
              message("{}  of tensors in memory, the small ones too in whole pages; the whole "
                      "process took {}",
                      s.memory.counted_peak, s.peak_rss));
  show_work(screen, s);
  show_plans(screen, s);
}

void show_one_of_several(Screen& screen, const RunStatistics& s, const std::string& name,
                         const std::string& what) {
  screen.line(name, message("needed {}{}, budget {} ({}), peak {}; {}", s.memory.live_peak,
                            s.has_whole_step ? "" : " so far", s.budget, s.budget_origin,
                            s.memory.counted_peak, what));
}

/// Of the host of a program that uses GPUs: most keep little there, of which nothing has to move.
bool has_work_to_show(const RunStatistics& s) {
  return s.memory.spilled + s.memory.fetched + s.memory.dropped > Bytes() || s.verify ||
         s.given_plan || share_of_run(s, s.stall_seconds()) > kNoticeableShare;
}

/// What the program trains on comes first.
void show_devices(Screen& screen, const RunStatistics& s) {
  for (const RunStatistics& device : s.devices) {
    show_one_of_several(screen, device, device.device,
                        message("{}, {}", device.device_name, device.device_memory));
    show_work(screen, device);
    show_plans(screen, device);
  }
  show_one_of_several(screen, s, "cpu", message("the whole process took {}", s.peak_rss));
  if (!has_work_to_show(s)) {
    show_wear(screen, s);
    return;
  }
  show_work(screen, s);
  show_plans(screen, s);
}

/// What would help most, first; never nothing.
std::vector<std::string> all_advice(const RunStatistics& s) {
  std::vector<std::string> lines;
  if (s.ranks) lines = ranks_advice(*s.ranks);
  for (const RunStatistics& device : s.devices)
    lines.push_back(message("{}: {}", device.device, advice(device)));
  const std::string of_memory = advice(s);
  if (lines.empty() || !of_memory.starts_with("nothing")) lines.push_back(of_memory);
  if (!s.has_told_errors) return lines;
  std::erase_if(lines, [](const std::string& line) {
    return line.starts_with("nothing") || line.find(": nothing") != std::string::npos;
  });
  if (lines.empty()) lines.emplace_back("what the error above says");
  return lines;
}

}  // namespace

std::string summary(const RunStatistics& s, const std::string& rank) {
  Screen screen(rank);
  if (s.devices.empty())
    show_host(screen, s);
  else
    show_devices(screen, s);
  if (s.ranks) {
    std::string_view word = "ranks";
    for (const std::string& line : ranks_table(*s.ranks))
      screen.line(std::exchange(word, ""), line);
  }
  std::string_view word = "advice";
  for (const std::string& line : all_advice(s)) screen.line(std::exchange(word, ""), line);
  return screen.text();
}

std::string progress_line(const Progress& p, std::size_t width) {
  std::string text = message("[spillway] step {}  {}  memory {}", p.step,
                             seconds_text(p.step_seconds), p.resident);
  for (const auto& [device, resident] : p.on_devices) text += message(", {} {}", device, resident);
  text += message("  spilled {}  in {}, out {}", p.spilled, p.read, p.write);
  if (text.size() > width) text.resize(width);
  return text;
}

}  // namespace spillway::runtime
