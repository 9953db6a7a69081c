#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <utility>

#include "spillway/base/assert.h"
#include "world.h"

namespace spillway::transport {
namespace {

/// Ends the threads of a rank that dies.
struct Died {};

}  // namespace

/// One side of a message.
class InProcessRanks::World::RankEvent final : public device::EventState {
 public:
  RankEvent(World& world, Messages::End end, std::string subject)
      : EventState(device::DeviceId()),
        world_(world),
        end_(std::move(end)),
        subject_(std::move(subject)) {}

  bool is_done() const override {
    if (end_->is_done.load(std::memory_order_acquire)) return true;
    Lock lock(world_.mutex());
    world_.poll_locked(lock);
    return end_->is_done.load(std::memory_order_acquire);
  }

  device::Outcome wait() const override {
    if (!end_->is_done.load(std::memory_order_acquire)) {
      Lock lock(world_.mutex());
      world_.count_verb_locked(rank_of_this_thread());
      world_.wait_locked(lock, {.is_over = [this] { return end_->is_done.load(); },
                                .subject = [this] { return subject_; }});
    }
    return end_->outcome;
  }

  Duration time_since(const EventState& earlier) const override {
    return end_->at - static_cast<const RankEvent&>(earlier).end_->at;
  }

 private:
  World& world_;
  const Messages::End end_;
  const std::string subject_;
};

class InProcessRanks::World::RankNotifier final : public Notifier {
 public:
  RankNotifier(World& world, Rank rank, std::optional<Stream> stream)
      : world_(world), rank_(rank), stream_(stream) {
    const Lock lock(world_.mutex());
    world_.notifiers_.push_back(this);
  }
  ~RankNotifier() override {
    const Lock lock(world_.mutex());
    std::erase(world_.notifiers_, this);
  }

  bool hears(const Messages::News& news) const {
    return news.rank == rank_ && (!stream_ || news.stream == *stream_);
  }
  void notify() override {
    const Lock lock(world_.mutex());
    notify_locked();
  }
  void notify_locked() {
    is_notified_ = true;
    world_.note_change_locked();
  }

  bool wait(TimePoint until) override {
    Lock lock(world_.mutex());
    world_.count_verb_locked(rank_);
    world_.wait_locked(lock, {.is_over = [this] { return is_notified_; },
                              .subject = [] { return "a notification"; },
                              .until = until});
    return std::exchange(is_notified_, false);
  }

 private:
  World& world_;
  const Rank rank_;
  const std::optional<Stream> stream_;
  bool is_notified_ = false;
};

class InProcessRanks::World::RankTransport final : public Transport {
 public:
  RankTransport(World& world, Rank rank) : Transport(rank, world.options_.ranks), world_(world) {}

  std::unique_ptr<Notifier> make_notifier(std::optional<Stream> stream) override {
    return world_.make_notifier(rank(), stream);
  }
  [[noreturn]] void abort(const std::string& reason) override { world_.abort(rank(), reason); }

 private:
  device::Event do_send(Rank to, Tag tag, device::DeviceSpan bytes) override {
    return world_.send({rank(), to, tag}, bytes);
  }
  device::Event do_receive(Rank from, Tag tag, device::DeviceSpan bytes) override {
    return world_.receive({from, rank(), tag}, bytes);
  }

  World& world_;
};

InProcessRanks::World::World(const InProcessOptions& options)
    : Turns(options.seed), options_(options), messages_(options), verbs_(options.ranks) {
  if (options.ranks == 0) throw ConfigError("a job of 0 ranks has nothing to run");
}

TimePoint InProcessRanks::World::now() const {
  const Lock lock(mutex());
  return now_locked();
}

bool InProcessRanks::World::is_death(const std::exception_ptr& thrown) const {
  try {
    std::rethrow_exception(thrown);
  } catch (const Died&) {
    return true;
  } catch (...) {
    return false;
  }
}

/// Lets the rank die when its time has come, and for as long as it is asked for anything else.
void InProcessRanks::World::count_verb_locked(Rank rank) {
  if (!rank.is_some()) return;  // Told by the wait itself.
  const std::uint64_t done = verbs_[rank.value()]++;
  if (!options_.death || options_.death->rank != rank || done < options_.death->after) return;
  if (done == options_.death->after) {
    tell_locked(messages_.note_death(rank, now_locked()));
    note_change_locked();
  }
  throw Died();
}

void InProcessRanks::World::tell_locked(const std::vector<Messages::News>& news) {
  for (RankNotifier* const notifier : notifiers_)
    if (std::any_of(news.begin(), news.end(),
                    [notifier](const Messages::News& one) { return notifier->hears(one); }))
      notifier->notify_locked();
  if (!news.empty()) note_change_locked();
}

device::Event InProcessRanks::World::event_of(Messages::End end, std::string subject) {
  return device::Event(std::make_shared<RankEvent>(*this, std::move(end), std::move(subject)));
}

device::Event InProcessRanks::World::send(const Messages::Name& name, device::DeviceSpan bytes) {
  const Lock lock(mutex());
  count_verb_locked(name.from);
  check_job_locked();
  const auto most = static_cast<std::uint64_t>(options_.most_delay.count());
  const Duration delay(most == 0 ? 0 : static_cast<Duration::rep>(draw_locked(most + 1)));
  Messages::End end = messages_.send(name, bytes, now_locked(), delay);
  if (end->is_done.load()) tell_locked({{name.from, name.tag.stream}});
  return event_of(std::move(end), message("rank {} to take {}", name.to, name.tag));
}

device::Event InProcessRanks::World::receive(const Messages::Name& name, device::DeviceSpan bytes) {
  const Lock lock(mutex());
  count_verb_locked(name.to);
  check_job_locked();
  Messages::End end = messages_.receive(name, bytes, now_locked());
  if (end->is_done.load()) tell_locked({{name.from, name.tag.stream}, {name.to, name.tag.stream}});
  return event_of(std::move(end), message("{} of rank {}", name.tag, name.from));
}

std::unique_ptr<Notifier> InProcessRanks::World::make_notifier(Rank rank,
                                                               std::optional<Stream> stream) {
  return std::make_unique<RankNotifier>(*this, rank, stream);
}

void InProcessRanks::World::abort(Rank rank, const std::string& reason) {
  const Lock lock(mutex());
  end_job_locked(message("rank {} has ended the job: {}", rank, reason));
  check_job_locked();
  std::abort();  // Not reached.
}

void InProcessRanks::World::run(const Body& body) {
  {
    const Lock lock(mutex());
    for (std::uint32_t i = 0; i < options_.ranks; ++i)
      add_locked(Rank(i), [this, &body, i] {
        RankTransport transport(*this, Rank(i));
        body(transport);
      });
  }
  run_all();
  const Lock lock(mutex());
  if (first_failure_locked()) std::rethrow_exception(first_failure_locked());
  check_job_locked();
  const std::string left = messages_.unreceived();
  messages_.end_all("the job has ended", now_locked());
  if (!left.empty()) throw TransportError("{} was never received", left);
}

void InProcessRanks::World::start(std::function<void()> work) {
  const Lock lock(mutex());
  SPILLWAY_ASSERT(rank_of_this_thread().is_some());
  add_locked(rank_of_this_thread(), std::move(work));
  note_change_locked();
}

void InProcessRanks::World::work(Duration time) {
  Lock lock(mutex());
  wait_locked(lock, {.is_over = [] { return false; },
                     .subject = [] { return "its own work"; },
                     .until = now_locked() + time});
}

InProcessRanks::InProcessRanks(const InProcessOptions& options)
    : world_(std::make_unique<World>(options)) {}
InProcessRanks::~InProcessRanks() = default;
void InProcessRanks::run(const Body& body) { world_->run(body); }
void InProcessRanks::start(std::function<void()> work) { world_->start(std::move(work)); }
void InProcessRanks::work(Duration time) { world_->work(time); }
const Clock& InProcessRanks::clock() const { return world_->clock(); }

}  // namespace spillway::transport
