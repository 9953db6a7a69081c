#include "spillway/pipeline/agreement/job.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <optional>

#include "calls.h"
#include "facts.h"
#include "questions.h"
#include "spillway/base/assert.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/log.h"
#include "spillway/base/read_pipe.h"

namespace spillway::pipeline {
namespace {

using transport::Stream;
using transport::TransportError;
using Kind = Questions::Kind;

constexpr std::uint64_t kFirstComparison = 8;  ///< Number of its message; facts have those below.
/// A message from who has ended, or waits for us, may still be on its way, for so long.
constexpr Duration kMostOnTheWay = std::chrono::minutes(10);
constexpr std::string_view kOurMistake =
    "which is a mistake of Spillway (report it with the lines above, and train with another "
    "--schedule or without --split)";

/// What ranks say of the hashes behind as many calls.
enum class Verdict : std::uint64_t { kUnknown, kEqual, kDifferent };

Verdict verdict_of(std::optional<std::uint64_t> mine, std::uint64_t theirs) {
  if (!mine) return Verdict::kUnknown;
  return *mine == theirs ? Verdict::kEqual : Verdict::kDifferent;
}

/// Where a rank says it is.
struct Answer {
  ControlHash::Position position;
  Verdict verdict = Verdict::kUnknown;  ///< Of the position that it was asked with.
  bool has_ended = false;
  Rank waits_for;
  std::uint64_t progress = 0;
  std::string doing;
};

/// Three ranks or more of which each waits for the next one, and the last one for this rank.
struct Ring {
  std::string others;      ///< ", which waits for rank 2", behind the first one that is waited for.
  std::uint64_t done = 0;  ///< Calls and work of all, added up: it changes where one gets on.
};

}  // namespace

class Job::Impl final : private Questions::Listener {
 public:
  Impl(transport::Transport& transport, JobOptions options)
      : transport_(transport),
        options_(std::move(options)),
        clock_(options_.clock != nullptr ? *options_.clock : steady_clock_),
        notifier_(transport.make_notifier()),
        ended_(transport.ranks()),
        has_left_(transport.ranks()),
        questions_(transport, *this, options_.start_thread) {}

  bool wait_until(const std::function<bool()>& is_over, const std::function<Rank()>& peer,
                  const std::function<std::string()>& what, std::uint64_t calls);
  void notify() { notifier_->notify(); }
  void wait(const device::Event& event, Rank peer, const std::function<std::string()>& what);
  void compare();
  void end();
  [[noreturn]] void abort(const std::string& reason) {
    end_job(message("{} ({})", reason, name(transport_.rank())));
  }
  std::vector<std::string> describe() const;
  void describe_by(std::function<std::vector<std::string>()> more,
                   std::function<std::uint64_t()> progress) {
    const std::lock_guard lock(more_mutex_);
    more_ = std::move(more);
    progress_ = std::move(progress);
  }

  ControlHash control;

 private:
  class WaitNoted;
  struct Comparison {
    std::uint64_t mine = 0, theirs = 0;
    device::Event sent, received;
  };
  struct Waiting {
    Rank peer;
    const std::function<std::string()>* what = nullptr;  ///< Null: it does not wait.
    TimePoint since;
  };
  struct Ended {
    ControlHash::Position position;
    std::uint64_t comparisons = 0;
    bool is_examined = false;
  };

  Packed answer_on_service_thread(Rank from, const Questions::Question& question) override;
  void lose_on_service_thread(Rank rank, const std::string& error) override;
  void end_on_service_thread() override { notifier_->notify(); }
  void note_end_on_service_thread(Rank from, const Ended& ended);
  Packed position_for(const ControlHash::Position& theirs) const;

  bool watch(const std::function<Rank()>& peer_now, const std::function<bool()>& is_over,
             std::uint64_t most_calls = std::numeric_limits<std::uint64_t>::max());
  std::optional<Ring> ring_of(Rank peer, const Answer& answer,
                              const std::function<bool()>& is_over);
  Answer unpacked(const Packed& bytes) const;
  bool evaluate(Rank peer, const Answer& answer);
  void report(Rank peer, const Answer& answer, Duration waited);
  bool await_answer(
      Rank peer, const Questions::Asked& asked,
      const std::function<bool()>& is_over = [] { return false; });
  void look_at_comparison();
  void examine_ends();
  void leave();

  std::string name(Rank rank) const { return name_of(rank, options_.hosts); }
  std::string doing() const;
  std::uint64_t progress() const;
  void tell_what_ranks_do(Rank silent);
  std::string silent_text(Rank peer) const;
  NamedCalls my_calls() const { return {name(transport_.rank()), control.latest()}; }
  void tell_of_end(Rank other);
  [[noreturn]] void end_apart(Rank peer);
  [[noreturn]] void end_silent(Rank peer);
  [[noreturn]] void end_unknown(Rank peer, const Answer& answer);
  [[noreturn]] void end_ring(Rank peer, const Ring& ring);
  [[noreturn]] void end_job(const std::string& reason) {
    transport_.abort(reason);
    std::abort();  // Not reached.
  }

  transport::Transport& transport_;
  const JobOptions options_;
  const SteadyClock steady_clock_;
  const Clock& clock_;
  const std::unique_ptr<transport::Notifier> notifier_;
  std::uint64_t comparisons_ = 0;
  std::array<Comparison, 2> comparing_;

  mutable std::mutex mutex_;
  Waiting waiting_;
  bool has_ended_ = false;
  std::vector<std::optional<Ended>> ended_;  ///< Of each rank.
  std::vector<bool> has_left_;

  mutable std::mutex more_mutex_;
  std::function<std::vector<std::string>()> more_;
  std::function<std::uint64_t()> progress_;
  std::atomic<bool> has_told_end_{false};
  /// The lowest rank that has asked what this one does, and tells it.
  std::atomic<Rank> teller_{Rank()};

  Questions questions_;  ///< Its thread uses what is above.
};

/// Lets others know what this rank waits for, while it does.
class Job::Impl::WaitNoted {
 public:
  WaitNoted(Impl& job, Rank peer, const std::function<std::string()>& what) : job_(job) {
    const std::lock_guard lock(job_.mutex_);
    job_.waiting_ = {peer, &what, job_.clock_.now()};
  }
  ~WaitNoted() {
    const std::lock_guard lock(job_.mutex_);
    job_.waiting_ = {};
  }
  WaitNoted(const WaitNoted&) = delete;
  WaitNoted& operator=(const WaitNoted&) = delete;

 private:
  Impl& job_;
};

void Job::Impl::wait(const device::Event& event, Rank peer,
                     const std::function<std::string()>& what) {
  if (!event.is_done()) {
    const WaitNoted noted(*this, peer, what);
    watch([peer] { return peer; }, [&event] { return event.is_done(); });
  }
  const device::Outcome outcome = event.wait();
  if (outcome.succeeded()) return;
  // Programs that went apart send other sizes than are expected: that is the better reason.
  const auto asked = questions_.ask(peer, Kind::kPosition, words_of(control.position()));
  if (await_answer(peer, *asked)) evaluate(peer, unpacked(asked->answer()));
  throw TransportError("{} did not come through between {} and {}: {}", what(),
                       name(transport_.rank()), name(peer), outcome.error);
}

bool Job::Impl::wait_until(const std::function<bool()>& is_over, const std::function<Rank()>& peer,
                           const std::function<std::string()>& what, std::uint64_t calls) {
  if (is_over()) return true;
  const WaitNoted noted(*this, peer(), what);
  return watch(peer, is_over, calls);
}

/// Sleeps until `is_over`, and asks the peer that this depends on where it is when that takes long.
/// False: that has made more than `most_calls`.
bool Job::Impl::watch(const std::function<Rank()>& peer_now, const std::function<bool()>& is_over,
                      std::uint64_t most_calls) {
  const TimePoint start = clock_.now();
  TimePoint ask_at = start + options_.patience;
  TimePoint expected_at = start;                // What it waits for could still be sent then.
  std::uint64_t seen_at = 0;                    // The call at which the peer was then,
  std::uint64_t done = 0, done_here = 0;        // and what both had done.
  TimePoint look_at = start + options_.report;  // For a ring of more than two.
  TimePoint ring_since = start;
  std::uint64_t ring_done = 0;
  bool is_reported = false;
  while (!is_over()) {
    notifier_->wait(ask_at);
    questions_.settle();
    if (clock_.now() < ask_at || is_over()) continue;
    ask_at = clock_.now() + options_.patience;
    const Rank peer = peer_now();
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.what != nullptr) waiting_.peer = peer;  // Others ask for it.
    }
    if (!peer.is_some()) {
      expected_at = clock_.now();
      continue;
    }
    const auto asked = questions_.ask(peer, Kind::kPosition, words_of(control.position()));
    // A peer that is gone is the service thread's to tell.
    if (await_answer(peer, *asked, is_over)) {
      const Answer answer = unpacked(asked->answer());
      const TimePoint now = clock_.now();
      const Duration waited = now - start;
      const bool is_expected = evaluate(peer, answer);
      const std::uint64_t here = progress();
      const bool gets_on = answer.progress != std::exchange(done, answer.progress) ||
                           here != std::exchange(done_here, here);
      const bool goes_on = answer.waits_for != transport_.rank() ||
                           answer.position.calls != std::exchange(seen_at, answer.position.calls);
      if (gets_on || (is_expected && goes_on)) expected_at = now;
      if (answer.position.calls > most_calls) return is_over();
      if (now - expected_at >= kMostOnTheWay) end_unknown(peer, answer);
      if (now >= look_at) {
        look_at = now + options_.report;
        const std::optional<Ring> ring = ring_of(peer, answer, is_over);
        if (!ring || ring->done != std::exchange(ring_done, ring->done)) ring_since = now;
        if (now - ring_since >= kMostOnTheWay) end_ring(peer, *ring);
      }
      if (waited >= options_.report && !std::exchange(is_reported, true))
        report(peer, answer, waited);
    }
    ask_at = clock_.now() + options_.patience;
  }
  return true;
}

/// Asks those that the peer waits for, one after the other. Nothing: one of them waits for nobody,
/// as one that computes, or they wait for each other without this rank.
std::optional<Ring> Job::Impl::ring_of(Rank peer, const Answer& answer,
                                       const std::function<bool()>& is_over) {
  Ring ring{.others = {}, .done = control.calls() + progress()};
  std::vector<bool> is_asked(transport_.ranks());
  is_asked[peer.value()] = true;
  ring.done += answer.position.calls + answer.progress;
  Rank next = answer.waits_for;
  while (next.is_some() && next != transport_.rank()) {
    if (is_asked[next.value()]) return std::nullopt;
    is_asked[next.value()] = true;
    const auto asked = questions_.ask(next, Kind::kPosition, words_of(control.position()));
    if (!await_answer(next, *asked, is_over)) return std::nullopt;
    const Answer one = unpacked(asked->answer());
    ring.others += message(", which waits for {}", name(next));
    ring.done += one.position.calls + one.progress;
    next = one.waits_for;
  }
  if (!next.is_some() || ring.others.empty()) return std::nullopt;
  return ring;
}

/// False: no answer will come, or it is over without. Counts the silence in short pieces, so that a
/// time in which this very rank was stopped is none.
bool Job::Impl::await_answer(Rank peer, const Questions::Asked& asked,
                             const std::function<bool()>& is_over) {
  const Duration piece = std::max(options_.silence / 20, Duration(1));
  Duration silence{0};
  TimePoint looked_at = clock_.now();
  while (true) {
    questions_.settle();
    if (asked.is_done()) return asked.error().empty();
    if (is_over()) return false;
    if (silence >= options_.silence) end_silent(peer);
    notifier_->wait(clock_.now() + piece);
    const TimePoint now = clock_.now();
    silence += std::min(now - looked_at, piece);
    looked_at = now;
  }
}

Answer Job::Impl::unpacked(const Packed& bytes) const {
  Unpacker unpacker(bytes);
  Answer answer;
  answer.position = {.calls = unpacker.number(), .value = unpacker.number()};
  answer.verdict = static_cast<Verdict>(unpacker.number());
  answer.has_ended = unpacker.number() != 0;
  answer.waits_for = Rank(static_cast<std::uint32_t>(unpacker.number()));
  answer.progress = unpacker.number();
  answer.doing = unpacker.text();
  if (answer.verdict == Verdict::kUnknown)
    answer.verdict = verdict_of(control.value_after(answer.position.calls), answer.position.value);
  return answer;
}

/// Ends the job where the programs went apart. False: the peer sends nothing any more, unless they
/// have made the same calls, which nobody can tell.
bool Job::Impl::evaluate(Rank peer, const Answer& answer) {
  if (options_.check_control) {
    if (answer.verdict == Verdict::kDifferent) end_apart(peer);
    // Who has ended before this call takes no part in it.
    if (answer.has_ended && answer.position.calls < control.calls()) end_apart(peer);
    if (answer.verdict == Verdict::kEqual) return true;
  }
  return !answer.has_ended && answer.waits_for != transport_.rank();
}

void Job::Impl::end_unknown(Rank peer, const Answer& answer) {
  tell_what_ranks_do(Rank());
  if (answer.verdict == Verdict::kEqual)
    end_job(message("{} waits for {}, which {}, and has waited for this rank at the same call for "
                    "{}: neither goes on, {}",
                    name(transport_.rank()), name(peer), answer.doing,
                    whole_seconds_text(kMostOnTheWay), kOurMistake));
  end_job(message("{} waits for {}, which {}: their programs went apart, {}",
                  name(transport_.rank()), name(peer), answer.doing,
                  options_.check_control
                      ? "too long ago to tell where (seed the program equally on all ranks)"
                      : "and --check-control on tells at which call"));
}

void Job::Impl::end_ring(Rank peer, const Ring& ring) {
  tell_what_ranks_do(Rank());
  end_job(message("{} waits for {}{}, which waits for this rank: none has gone on for {}, {}",
                  name(transport_.rank()), name(peer), ring.others,
                  whole_seconds_text(kMostOnTheWay), kOurMistake));
}

void Job::Impl::report(Rank peer, const Answer& answer, Duration waited) {
  const std::lock_guard lock(mutex_);
  log_warning("{} has waited for {} of {} for {}; {} {}", name(transport_.rank()),
              waiting_.what != nullptr ? (*waiting_.what)() : "the end", name(peer),
              whole_seconds_text(waited), name(peer), answer.doing);
}

void Job::Impl::compare() {
  if (!options_.check_control || transport_.ranks() == 1) return;
  if (comparisons_ > 0) look_at_comparison();
  const std::uint32_t me = transport_.rank().value();
  const std::uint32_t ranks = transport_.ranks();
  Comparison& now = comparing_[comparisons_ % 2];
  const transport::Tag tag{Stream::kControl, kFirstComparison + comparisons_++};
  now.mine = control.value();
  now.received =
      transport_.receive(Rank((me + ranks - 1) % ranks), tag, device::host_span_of(now.theirs));
  now.sent = transport_.send(Rank((me + 1) % ranks), tag, device::host_span_of(now.mine));
}

/// At that of the step before.
void Job::Impl::look_at_comparison() {
  const std::uint32_t me = transport_.rank().value();
  const std::uint32_t ranks = transport_.ranks();
  const Rank before((me + ranks - 1) % ranks), next((me + 1) % ranks);
  const Comparison& last = comparing_[(comparisons_ - 1) % 2];
  const std::uint64_t step = comparisons_ - 1;
  wait(last.received, before, [step] { return message("the hash of comparison {}", step); });
  if (last.mine != last.theirs) end_apart(before);
  wait(last.sent, next, [step] { return message("the end of comparison {}", step); });
}

void Job::Impl::end() {
  const ControlHash::Position mine = control.position();
  {
    const std::lock_guard lock(mutex_);
    SPILLWAY_ASSERT(!has_ended_);
    has_ended_ = true;
  }
  for (std::uint32_t i = 0; i < transport_.ranks(); ++i)
    if (Rank(i) != transport_.rank())
      questions_.ask(Rank(i), Kind::kEnded, {mine.calls, mine.value, comparisons_});
  const std::function<std::string()> what = [] { return std::string("the end of the program"); };
  for (std::uint32_t i = 0; i < transport_.ranks(); ++i) {
    if (Rank(i) == transport_.rank()) continue;
    const WaitNoted noted(*this, Rank(i), what);
    watch([i] { return Rank(i); },
          [this, i] {
            examine_ends();
            const std::lock_guard lock(mutex_);
            return ended_[i].has_value();
          });
  }
  examine_ends();
  if (comparisons_ > 0) look_at_comparison();
  leave();
}

/// Ends the job where another rank has ended after other calls than this one.
void Job::Impl::examine_ends() {
  if (!options_.check_control) return;
  std::optional<Rank> apart;
  {
    const ControlHash::Position mine = control.position();
    const std::lock_guard lock(mutex_);
    for (std::uint32_t i = 0; i < ended_.size(); ++i) {
      if (!ended_[i] || std::exchange(ended_[i]->is_examined, true)) continue;
      const auto& [calls, value] = ended_[i]->position;
      if (calls != mine.calls || value != mine.value || ended_[i]->comparisons != comparisons_)
        apart = Rank(i);
    }
  }
  if (apart) end_apart(*apart);
}

void Job::Impl::leave() {
  questions_.leave();
  for (std::uint32_t i = 0; i < transport_.ranks(); ++i) {
    if (Rank(i) == transport_.rank()) continue;
    const Duration piece = std::max(options_.silence / 20, Duration(1));
    Duration silence{0};
    const auto has_left = [this, i] {
      const std::lock_guard lock(mutex_);
      return static_cast<bool>(has_left_[i]);
    };
    // All have ended, and have nothing to do but to say so.
    while (!has_left()) {
      if (silence >= options_.silence) end_job(silent_text(Rank(i)));
      const TimePoint before = clock_.now();
      notifier_->wait(before + piece);
      silence += std::min(clock_.now() - before, piece);
    }
  }
  while (!questions_.settle() || !questions_.has_ended()) notifier_->wait();
}

Packed Job::Impl::answer_on_service_thread(Rank from, const Questions::Question& question) {
  const ControlHash::Position theirs{.calls = question.words[0], .value = question.words[1]};
  switch (question.kind) {
    case Kind::kPosition: return position_for(theirs);
    case Kind::kLatestCalls:
      tell_of_end(from);  // Who asks for them ends the job.
      return packed_calls(control.latest());
    case Kind::kDescription: {
      if (from < teller_.load()) teller_.store(from);
      Packer packer;
      const std::vector<std::string> lines = describe();
      packer.add(lines.size());
      for (const std::string& line : lines) packer.add(line);
      return packer.take();
    }
    case Kind::kEnded:
      note_end_on_service_thread(from, {.position = theirs, .comparisons = question.words[2]});
      break;
    case Kind::kLeaving: {
      const std::lock_guard lock(mutex_);
      has_left_[from.value()] = true;
      break;
    }
  }
  notifier_->notify();
  return {};
}

Packed Job::Impl::position_for(const ControlHash::Position& theirs) const {
  const ControlHash::Position mine = control.position();
  Packer packer;
  packer.add(mine.calls);
  packer.add(mine.value);
  packer.add(
      static_cast<std::uint64_t>(verdict_of(control.value_after(theirs.calls), theirs.value)));
  const std::string text = doing();
  const std::uint64_t done = progress();
  const std::lock_guard lock(mutex_);
  packer.add(has_ended_ ? 1 : 0);
  packer.add(waiting_.peer.value());
  packer.add(done);
  packer.add(text);
  return packer.take();
}

std::uint64_t Job::Impl::progress() const {
  const std::lock_guard lock(more_mutex_);
  return progress_ ? progress_() : 0;
}

/// Where this program has gone on, the job ends at once: it may compute for long before it waits.
void Job::Impl::note_end_on_service_thread(Rank from, const Ended& ended) {
  {
    const std::lock_guard lock(mutex_);
    ended_[from.value()] = ended;
  }
  if (!options_.check_control || control.calls() <= ended.position.calls) return;
  if (control.value_after(ended.position.calls) != ended.position.value)
    return;  // `wait` tells more.
  end_job(text_apart({name(from), {}}, ended.position.calls, my_calls(), control.calls()));
}

void Job::Impl::lose_on_service_thread(Rank rank, const std::string& error) {
  end_job(
      message("{} was lost: {} (its host's log or the launcher may tell why)", name(rank), error));
}

/// What the program does, for a sentence about this rank.
std::string Job::Impl::doing() const {
  const std::vector<ControlHash::Call> last = control.latest(1);
  const std::string where = last.empty()
                                ? "before its first call"
                                : message("at call {}, {}", last.back().index, last.back().name);
  const std::lock_guard lock(mutex_);
  const std::string what = message("{} {}", has_ended_ ? "has ended" : "is", where);
  if (waiting_.what == nullptr) return what;
  return message("{}, and has waited {} for {}{}", what,
                 whole_seconds_text(clock_.now() - waiting_.since), (*waiting_.what)(),
                 waiting_.peer.is_some() ? " of " + name(waiting_.peer) : "");
}

std::vector<std::string> Job::Impl::describe() const {
  constexpr std::size_t kShown = 8;
  std::string text = message("{} {}", name(transport_.rank()), doing());
  const char* separator = "; its latest calls: ";
  for (const ControlHash::Call& call : control.latest(kShown)) {
    text += message("{}{} {}", separator, call.index, call.name);
    separator = ", ";
  }
  std::vector<std::string> lines{std::move(text)};
  const std::lock_guard lock(more_mutex_);
  if (more_)
    for (const std::string& line : more_())
      lines.push_back(message("{} {}", name(transport_.rank()), line));
  return lines;
}

/// Before the job ends, and with it the way to the user: by this line `spillway run` knows that it
/// is to show what the program wrote last.
void Job::Impl::tell_of_end(Rank other) {
  const std::vector<ControlHash::Call> last = control.latest(1);
  if (last.empty() || last.back().name != ControlHash::kEndOfProgram) return;
  if (!log_enabled(LogLevel::kError) || has_told_end_.exchange(true)) return;
  log_line(LogLevel::kInfo,
           message("the program has ended on this rank, by other calls than on {}", name(other)));
  wait_until_read(STDERR_FILENO, std::chrono::seconds(1));
}

void Job::Impl::end_apart(Rank peer) {
  NamedCalls theirs{name(peer), {}};
  const auto asked = questions_.ask(peer, Kind::kLatestCalls);
  if (!await_answer(peer, *asked))
    end_job(message("the programs of {} and {} went apart (seed the program equally on all ranks)",
                    name(transport_.rank()), name(peer)));
  tell_of_end(peer);
  const UnpackedCalls calls(asked->answer());
  theirs.calls = calls.calls();
  const std::uint64_t count = theirs.calls.empty() ? 0 : theirs.calls.back().index + 1;
  end_job(text_apart(my_calls(), control.calls(), theirs, count));
}

/// Before the job ends for want of an answer: by the lowest of the ranks that find it. Those that
/// cannot answer soon are left out.
void Job::Impl::tell_what_ranks_do(Rank silent) {
  const TimePoint until = clock_.now() + options_.silence / 5;
  std::vector<std::string> lines = describe();
  const auto wait_for = [&](const auto& is_over) {
    while (!is_over() && clock_.now() < until) {
      notifier_->wait(until);
      questions_.settle();
    }
  };
  if (!teller_.load().is_some()) {
    std::vector<std::shared_ptr<const Questions::Asked>> asked;
    for (std::uint32_t i = 0; i < transport_.ranks(); ++i)
      if (Rank(i) != transport_.rank() && Rank(i) != silent)
        asked.push_back(questions_.ask(Rank(i), Kind::kDescription));
    for (const auto& one : asked) {
      wait_for([&one] { return one->is_done(); });
      if (!one->is_done() || !one->error().empty()) continue;
      Unpacker unpacker(one->answer());
      for (std::uint64_t count = unpacker.number(); count > 0; --count)
        lines.push_back(unpacker.text());
    }
    if (transport_.rank() < teller_.load()) {
      if (log_enabled(LogLevel::kError))
        for (const std::string& line : lines) log_line(LogLevel::kInfo, line);
      return;
    }
  }
  wait_for([] { return false; });  // For the other one to end the job.
}

void Job::Impl::end_silent(Rank peer) {
  tell_what_ranks_do(peer);
  end_job(silent_text(peer));
}

std::string Job::Impl::silent_text(Rank peer) const {
  return message("{} does not answer {} for {}: it is stopped, or its host is: look at it there",
                 name(peer), name(transport_.rank()), whole_seconds_text(options_.silence));
}

void compare_facts(transport::Transport& transport, const JobFacts& facts,
                   const JobOptions& options) {
  const SteadyClock steady_clock;
  compare_facts(transport, facts, options,
                options.clock != nullptr ? *options.clock : steady_clock);
}

Job::Job(transport::Transport& transport, const JobFacts& facts, JobOptions options) {
  if (!options.hosts.empty() && options.hosts.size() != transport.ranks())
    throw ConfigError("a job of {} ranks has {} hosts", transport.ranks(), options.hosts.size());
  compare_facts(transport, facts, options);
  impl_ = std::make_unique<Impl>(transport, std::move(options));
}

Job::~Job() = default;

ControlHash& Job::control() { return impl_->control; }
void Job::wait(const device::Event& event, Rank peer, const std::function<std::string()>& what) {
  impl_->wait(event, peer, what);
}
bool Job::wait_until(const std::function<bool()>& is_over, const std::function<Rank()>& peer,
                     const std::function<std::string()>& what, std::uint64_t calls) {
  return impl_->wait_until(is_over, peer, what, calls);
}
void Job::notify() { impl_->notify(); }
void Job::compare() { impl_->compare(); }
void Job::end() { impl_->end(); }
void Job::abort(const std::string& reason) { impl_->abort(reason); }
std::vector<std::string> Job::describe() const { return impl_->describe(); }
void Job::describe_by(std::function<std::vector<std::string>()> more,
                      std::function<std::uint64_t()> progress) {
  impl_->describe_by(std::move(more), std::move(progress));
}

}  // namespace spillway::pipeline
