#include "messenger.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "spillway/base/launcher.h"
#include "spillway/base/log.h"
#include "spillway/base/read_pipe.h"
#include "spillway/base/signals_blocked.h"

namespace spillway::transport::mpi {
namespace {

constexpr int kAbortCode = 1;

/// MPI moves bytes while it is asked, and tells of whole pieces only.
constexpr Duration kLongestPiece = std::chrono::milliseconds(200);
/// Where nothing is expected and nothing is under way: whoever expects something wakes the thread.
constexpr Duration kIdleSleep = std::chrono::milliseconds(10);

TimePoint now() { return SteadyClock().now(); }

/// What MPI does in its abort besides, and what of the program would run at its exit, must not
/// keep the process from ending.
[[noreturn]] void abort_on_mpi_thread(const Shim& shim) {
  std::atexit([] { ::_exit(kAbortCode); });
  shim.abort(kAbortCode);
  ::_exit(kAbortCode);
}

}  // namespace

class Messenger::RankNotifier final : public Notifier {
 public:
  RankNotifier(Messenger& rank, std::optional<Stream> stream) : rank_(rank), stream_(stream) {
    const std::lock_guard lock(rank_.mutex_);
    rank_.notifiers_.push_back(this);
  }
  ~RankNotifier() override {
    const std::lock_guard lock(rank_.mutex_);
    std::erase(rank_.notifiers_, this);
  }

  /// Of the ends of messages.
  void notify_of(const Matching::News& news) {
    if (!stream_ || news[static_cast<std::size_t>(*stream_)]) notify();
  }

  void notify() override {
    {
      const std::lock_guard lock(mutex_);
      is_notified_ = true;
    }
    notified_.notify_one();
  }

  bool wait(TimePoint until) override {
    bool is_notified = false;
    {
      std::unique_lock lock(mutex_);
      const auto has_come = [this] { return is_notified_; };
      if (until == TimePoint::max())
        notified_.wait(lock, has_come);
      else
        notified_.wait_until(lock, until, has_come);
      is_notified = std::exchange(is_notified_, false);
    }
    const std::lock_guard lock(rank_.mutex_);
    rank_.check_job_locked();
    return is_notified;
  }

 private:
  Messenger& rank_;
  const std::optional<Stream> stream_;
  std::mutex mutex_;
  std::condition_variable notified_;
  bool is_notified_ = false;
};

Messenger::Messenger(const MpiOptions& options) : options_(options) {
  {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { run_on_mpi_thread(); });
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stage_ != Stage::kJoining; });
  if (!refusal_) return;
  lock.unlock();
  thread_.join();
  std::rethrow_exception(refusal_);
}

Messenger::~Messenger() {
  {
    std::unique_lock lock(mutex_);
    is_ending_ = true;
    wake_.notify_one();
    const bool is_over = changed_.wait_for(
        lock, options_.time_limit, [this] { return stage_ == Stage::kEnded || !failure_.empty(); });
    if (!is_over || !failure_.empty()) {
      const std::string reason = failure_.empty()
                                     ? message("{} did not come to the end of the job within {} s",
                                               absent_ranks_locked(), seconds(options_.time_limit))
                                     : failure_;
      lock.unlock();
      abort(reason);
    }
  }
  thread_.join();
}

void Messenger::run_on_mpi_thread() {
  ::pthread_setname_np(::pthread_self(), "spillway-mpi");
  ::prctl(PR_SET_TIMERSLACK, 1000UL);  // Nanoseconds, instead of 50 µs: short rests are short.
  try {
    join_on_mpi_thread();
  } catch (...) {
    refusal_ = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    stage_ = refusal_ ? Stage::kEnded : Stage::kRunning;
    changed_.notify_all();
  }
  if (refusal_) return;
  try {
    exchange_on_mpi_thread();
    check_mpi(*site_.shim, site_.shim->close(is_ours_ ? 1 : 0), "its end");
  } catch (const Error& error) {
    fail(error.what());
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return is_aborting_; });
    lock.unlock();
    abort_on_mpi_thread(*site_.shim);
  }
  const std::lock_guard lock(mutex_);
  matching_->end_all("the job has ended");
  tell_locked();
  stage_ = Stage::kEnded;
  changed_.notify_all();
}

void Messenger::join_on_mpi_thread() {
  site_ = open_site(options_);
  job_.library = site_.library;
  job_.version = site_.version;
  job_.abi = site_.abi;
  const Shim& shim = *site_.shim;
  ShimState state{};
  check_mpi(shim, shim.find_state(&state), "its state");
  if (state.is_finalised != 0)
    throw UnsupportedError("this process has finalised MPI, which cannot begin again after that");
  is_ours_ = state.is_initialised == 0;
  if (is_ours_) {
    check_mpi(shim, shim.initialise(&state.threads), "its initialisation");
    if (state.threads == ThreadSupport::kSingle)
      throw UnsupportedError("{} serves no programs with threads (MPI_THREAD_FUNNELED)",
                             site_.version);
  } else if (state.threads != ThreadSupport::kMultiple) {
    throw UnsupportedError(
        "the program has initialised MPI for fewer threads than two: with Spillway it has to call "
        "MPI_Init_thread and ask for MPI_THREAD_MULTIPLE ({})",
        site_.version);
  }
  check_mpi(shim, shim.open(&world_), "the communicators of Spillway");
  check_launcher_on_mpi_thread();
  find_hosts_on_mpi_thread();
  matching_.emplace(rank());
  letters_from_.resize(ranks());
  letters_expected_.resize(ranks());
  wire_.emplace(shim, world_, options_.is_synchronous, static_cast<Wire::Listener&>(*this));
}

void Messenger::check_launcher_on_mpi_thread() {
  const std::optional<Launcher> launcher = find_launcher();
  if (!launcher || launcher->ranks <= 1 || ranks() != 1) return;
  check_mpi(*site_.shim, site_.shim->close(is_ours_ ? 1 : 0), "its end");
  throw ConfigError(
      "{} has started {} ranks ({}), and {} ({}) knows nothing of it: each rank would be alone; "
      "start the job with the launcher of that MPI, or let the launcher's be the one that is found "
      "(LD_LIBRARY_PATH)",
      launcher->name, launcher->ranks, launcher->variable, site_.version, site_.library);
}

void Messenger::find_hosts_on_mpi_thread() {
  constexpr std::size_t kLength = 256;
  char mine[kLength] = "";
  ::gethostname(mine, kLength - 1);
  std::vector<char> all(kLength * ranks());
  check_mpi(*site_.shim, site_.shim->gather(mine, kLength, all.data()), "the names of hosts");
  std::vector<std::uint8_t> is_here(ranks());
  check_mpi(*site_.shim, site_.shim->find_ranks_here(is_here.data()), "the ranks of this host");
  for (std::uint32_t i = 0; i < ranks(); ++i) {
    job_.hosts.emplace_back(&all[kLength * i]);
    if (is_here[i] != 0) job_.ranks_here.push_back(Rank(i));
  }
}

void Messenger::exchange_on_mpi_thread() {
  moved_at_ = now();
  while (true) {
    const bool had_orders = carry_out_orders_on_mpi_thread();
    // Here, where all that has come is being drained.
    if (is_leaving_ && wire_->is_idle() && have_all_left()) return;
    rest(wire_->progress() || had_orders);
  }
}

bool Messenger::carry_out_orders_on_mpi_thread() {
  std::vector<Order> orders;
  bool is_ending = false;
  bool has_more = false;
  {
    const std::lock_guard lock(mutex_);
    if (is_aborting_) abort_on_mpi_thread(*site_.shim);
    orders.swap(orders_);
    is_ending = is_ending_;
    has_more = std::exchange(is_expecting_, false) || !orders.empty();
  }
  for (Order& order : orders) {
    if (order.data) {
      wire_->receive(*order.data);
      continue;
    }
    wire_->send(order.name, std::move(order.letter), order.bytes, order.is_told);
  }
  if (is_ending && !is_leaving_) {
    is_leaving_ = true;
    wire_->send_leave();
  }
  if (is_leaving_) drain_on_mpi_thread();
  return has_more;
}

/// Takes in what nobody has received, so that its sender can end, too.
void Messenger::drain_on_mpi_thread() {
  Matching::Unreceived unreceived;
  {
    const std::lock_guard lock(mutex_);
    unreceived = matching_->take_unreceived();
  }
  for (const std::string& name : unreceived.names) log_warning("{} was never received", name);
  for (const DataReceive& data : unreceived.data) wire_->receive(data);
}

bool Messenger::have_all_left() const {
  const std::lock_guard lock(mutex_);
  return matching_->left_count() + 1 == ranks();
}

/// Asks at once while things move. After that the rest grows with the time that nothing has moved
/// for, so that it makes no wait much longer and the rests of a long one cost little.
void Messenger::rest(bool has_moved) {
  const TimePoint moment = now();
  if (has_moved) {
    moved_at_ = moment;
    return;
  }
  const Duration quiet = moment - moved_at_;
  if (quiet < (wire_->is_moving() ? kLongestPiece : options_.spin)) {
    std::this_thread::yield();
    return;
  }
  std::unique_lock lock(mutex_);
  if (!orders_.empty() || is_expecting_ || is_aborting_ || is_leaving_ != is_ending_) return;
  const bool is_idle = wire_->is_idle() && !matching_->is_expecting() && !is_leaving_;
  wake_.wait_for(lock, std::min(quiet / 8, is_idle ? kIdleSleep : options_.longest_sleep));
}

void Messenger::take_letter(Rank from, const Envelope& envelope,
                            std::span<const std::byte> inside) {
  std::optional<DataReceive> data;
  {
    const std::lock_guard lock(mutex_);
    if (envelope.kind == Envelope::Kind::kTaking) {
      wire_->note_taken(from, envelope.data_tag);
    } else if (envelope.kind == Envelope::Kind::kLeaving) {
      letters_expected_[from.value()] = envelope.number;
    } else {
      Matching::Arrival arrival{
          {from, {envelope.stream, envelope.number}}, Bytes(envelope.size), {}, inside};
      if (envelope.kind == Envelope::Kind::kBytesFollow) arrival.data_tag = envelope.data_tag;
      data = matching_->arrive(arrival);
    }
    // MPI ends receives in another order than it has matched them.
    if (++letters_from_[from.value()] == letters_expected_[from.value()])
      matching_->note_left(from);
    tell_locked();
  }
  if (data) wire_->receive(*data);
}

void Messenger::end_send(const Name& name) {
  const std::lock_guard lock(mutex_);
  matching_->end_send(name, {});
  tell_locked();
}

void Messenger::end_receive(const Name& name) {
  const std::lock_guard lock(mutex_);
  matching_->end_receive(name, {});
  tell_locked();
}

void Messenger::order_locked(Order order) {
  orders_.push_back(std::move(order));
  wake_.notify_one();
}

device::Event Messenger::send(Rank to, Tag tag, device::DeviceSpan bytes) {
  const bool is_inside = bytes.size <= Bytes(kMostInside);
  const bool is_told = !is_inside || options_.is_synchronous;
  Order order{.name = {to, tag}, .is_told = is_told};
  const Envelope envelope{
      .size = bytes.size.count(),
      .number = tag.number,
      .stream = tag.stream,
      .kind = is_inside ? Envelope::Kind::kWithBytes : Envelope::Kind::kBytesFollow};
  if (is_inside) {
    order.letter = make_letter(envelope, std::span(bytes.data, bytes.size.count()));
  } else {
    order.letter = make_letter(envelope);
    order.bytes = bytes;
  }
  const std::lock_guard lock(mutex_);
  check_job_locked();
  const EventPointer event = matching_->start_send(order.name);
  if (!is_told) matching_->end_send(order.name, {});
  order_locked(std::move(order));
  tell_locked();
  return device::Event(event);
}

device::Event Messenger::receive(Rank from, Tag tag, device::DeviceSpan bytes) {
  const std::lock_guard lock(mutex_);
  check_job_locked();
  const auto [event, data] = matching_->receive({from, tag}, bytes);
  if (data) {
    order_locked({.data = data});
  } else if (!event->is_done()) {
    is_expecting_ = true;
    wake_.notify_one();
  }
  tell_locked();
  return device::Event(event);
}

std::unique_ptr<Notifier> Messenger::make_notifier(std::optional<Stream> stream) {
  return std::make_unique<RankNotifier>(*this, stream);
}

void Messenger::check_job_locked() const {
  if (!failure_.empty()) throw TransportError("{}", failure_);
}

/// With the lock under which messages have ended: a notifier that is made after that hears nothing.
void Messenger::tell_locked() {
  const Matching::News news = matching_->take_news();
  if (news.none()) return;
  for (RankNotifier* const notifier : notifiers_) notifier->notify_of(news);
}

void Messenger::fail(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  failure_ = reason;
  matching_->end_all(reason);
  for (RankNotifier* const notifier : notifiers_) notifier->notify();
  changed_.notify_all();
}

std::string Messenger::absent_ranks_locked() const {
  std::string names;
  for (std::uint32_t i = 0; i < ranks(); ++i)
    if (Rank(i) != rank() && !matching_->has_left(Rank(i)))
      names += message("{}rank {}", names.empty() ? "" : ", ", i);
  return names.empty() ? "MPI" : names;
}

void Messenger::abort(const std::string& reason) {
  log_error("rank {} ends the job: {}", rank(), reason);
  std::unique_lock lock(mutex_);
  // A launcher that is told to end a job drops what it has not read of it yet: of MPICH, one reason
  // in ten.
  const TimePoint latest = now() + std::min<Duration>(options_.time_limit, std::chrono::seconds(1));
  while (!is_read(STDERR_FILENO) && now() < latest)
    changed_.wait_for(lock, std::chrono::milliseconds(1));
  is_aborting_ = true;
  wake_.notify_one();
  // The MPI thread ends the process, unless MPI itself does not come back.
  changed_.wait_for(lock, options_.time_limit, [] { return false; });
  ::_exit(kAbortCode);
}

}  // namespace spillway::transport::mpi
