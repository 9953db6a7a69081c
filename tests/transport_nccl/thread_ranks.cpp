#include "thread_ranks.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace spillway::transport {
namespace {

class Ending final : public device::EventState {
 public:
  Ending() : EventState(device::DeviceId()) {}

  void finish(std::string error) {
    const std::lock_guard lock(mutex_);
    outcome_ = device::Outcome{std::move(error)};
    at_ = SteadyClock().now();
    ended_.notify_all();
  }
  bool is_done() const override {
    const std::lock_guard lock(mutex_);
    return outcome_.has_value();
  }
  device::Outcome wait() const override {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return outcome_.has_value(); });
    return *outcome_;
  }
  Duration time_since(const EventState& earlier) const override {
    return at_ - static_cast<const Ending&>(earlier).at_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;
  std::optional<device::Outcome> outcome_;
  TimePoint at_;
};

struct Name {
  Rank from, to;
  Tag tag;
  auto operator<=>(const Name&) const = default;
};

struct Receive {
  device::DeviceSpan bytes;
  std::shared_ptr<Ending> ending;
};

}  // namespace

struct ThreadRanks::World {
  class Bell;

  explicit World(std::uint32_t count) : ranks(count) {}

  void fail(const std::string& reason);
  void deliver(const Name& name, Receive& receive, const std::vector<std::byte>& bytes);
  void ring(Rank rank, Stream stream);

  const std::uint32_t ranks;
  std::mutex mutex;
  std::string failure;
  std::map<Name, std::vector<std::byte>> sent;
  std::map<Name, Receive> posted;
  std::set<Rank> silent;
  std::vector<Bell*> bells;
  std::vector<std::thread> threads;
};

class ThreadRanks::World::Bell final : public Notifier {
 public:
  Bell(World& world, Rank rank, std::optional<Stream> stream)
      : world_(world), rank_(rank), stream_(stream) {
    const std::lock_guard lock(world_.mutex);
    world_.bells.push_back(this);
  }
  ~Bell() override {
    const std::lock_guard lock(world_.mutex);
    std::erase(world_.bells, this);
  }

  void ring(Rank rank, Stream stream) {
    if (rank == rank_ && (!stream_ || *stream_ == stream)) notify();
  }
  void notify() override {
    const std::lock_guard lock(mutex_);
    is_notified_ = true;
    rung_.notify_all();
  }
  bool wait(TimePoint until) override {
    bool is_notified = false;
    {
      std::unique_lock lock(mutex_);
      const auto has_rung = [this] { return is_notified_; };
      if (until == TimePoint::max())
        rung_.wait(lock, has_rung);
      else
        rung_.wait_until(lock, until, has_rung);
      is_notified = std::exchange(is_notified_, false);
    }
    const std::lock_guard lock(world_.mutex);
    if (!world_.failure.empty()) throw TransportError("{}", world_.failure);
    return is_notified;
  }

 private:
  World& world_;
  const Rank rank_;
  const std::optional<Stream> stream_;
  std::mutex mutex_;
  std::condition_variable rung_;
  bool is_notified_ = false;
};

void ThreadRanks::World::ring(Rank rank, Stream stream) {
  for (Bell* const bell : bells) bell->ring(rank, stream);
}

void ThreadRanks::World::deliver(const Name& name, Receive& receive,
                                 const std::vector<std::byte>& bytes) {
  const std::size_t expected = receive.bytes.size.count();
  if (bytes.size() == expected) {
    if (expected > 0) std::memcpy(receive.bytes.data, bytes.data(), expected);
    receive.ending->finish({});
  } else {
    receive.ending->finish(message("{} from rank {} to rank {} has {} bytes, and {} were expected",
                                   name.tag, name.from, name.to, bytes.size(), expected));
  }
  ring(name.to, name.tag.stream);
}

void ThreadRanks::World::fail(const std::string& reason) {
  const std::lock_guard lock(mutex);
  if (!failure.empty()) return;
  failure = reason;
  for (auto& [name, receive] : posted) receive.ending->finish(reason);
  posted.clear();
  for (Bell* const bell : bells) bell->notify();
}

class ThreadRanks::Member final : public Transport {
 public:
  Member(World& world, Rank rank) : Transport(rank, world.ranks), world_(world) {}

  std::unique_ptr<Notifier> make_notifier(std::optional<Stream> stream) override {
    return std::make_unique<World::Bell>(world_, rank(), stream);
  }
  [[noreturn]] void abort(const std::string& reason) override {
    world_.fail(reason);
    throw TransportError("{}", reason);
  }

 private:
  device::Event do_send(Rank to, Tag tag, device::DeviceSpan bytes) override {
    const std::lock_guard lock(world_.mutex);
    if (!world_.failure.empty()) throw TransportError("{}", world_.failure);
    const Name name{rank(), to, tag};
    std::vector<std::byte> copy(bytes.data, bytes.data + bytes.size.count());
    const auto at = world_.posted.find(name);
    if (world_.silent.contains(rank())) {
      // Lost.
    } else if (at != world_.posted.end()) {
      Receive receive = std::move(at->second);
      world_.posted.erase(at);
      world_.deliver(name, receive, copy);
    } else if (!world_.sent.emplace(name, std::move(copy)).second) {
      throw Error("{} from rank {} to rank {} is sent twice at a time", tag, rank(), to);
    }
    world_.ring(rank(), tag.stream);
    return device::Event();
  }

  device::Event do_receive(Rank from, Tag tag, device::DeviceSpan bytes) override {
    const std::lock_guard lock(world_.mutex);
    if (!world_.failure.empty()) throw TransportError("{}", world_.failure);
    const Name name{from, rank(), tag};
    Receive receive{bytes, std::make_shared<Ending>()};
    const device::Event event(receive.ending);
    if (const auto at = world_.sent.find(name); at != world_.sent.end()) {
      world_.deliver(name, receive, at->second);
      world_.sent.erase(at);
    } else if (!world_.posted.emplace(name, std::move(receive)).second) {
      throw Error("{} from rank {} to rank {} is received twice at a time", tag, from, rank());
    }
    return event;
  }

  World& world_;
};

ThreadRanks::ThreadRanks(std::uint32_t ranks) : world_(std::make_unique<World>(ranks)) {}
ThreadRanks::~ThreadRanks() = default;

void ThreadRanks::run(const std::function<void(Transport&)>& body) {
  std::vector<std::exception_ptr> errors(world_->ranks);
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < world_->ranks; ++i)
    threads.emplace_back([&, i] {
      Member member(*world_, Rank(i));
      try {
        body(member);
      } catch (const std::exception& error) {
        errors[i] = std::current_exception();
        world_->fail(message("rank {} has ended: {}", i, error.what()));
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (std::thread& thread : world_->threads) thread.join();
  world_->threads.clear();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

void ThreadRanks::start(std::function<void()> work) {
  const std::lock_guard lock(world_->mutex);
  world_->threads.emplace_back(std::move(work));
}

void ThreadRanks::silence(Rank rank) {
  const std::lock_guard lock(world_->mutex);
  world_->silent.insert(rank);
}

}  // namespace spillway::transport
