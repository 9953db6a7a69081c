#include "stream.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <thread>
#include <utility>

#include "capture.h"
#include "devices.h"
#include "failure.h"
#include "ordering.h"
#include "settings.h"

namespace spillway::emulated {

void Mark::pass() {
  const std::lock_guard lock(mutex_);
  passed_ = true;
  when_ = std::chrono::steady_clock::now();
  changed_.notify_all();
}

void Mark::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return passed_; });
}

bool Mark::passed() {
  const std::lock_guard lock(mutex_);
  return passed_;
}

Mark::Time Mark::when() {
  const std::lock_guard lock(mutex_);
  return when_;
}

const char*& running() {
  thread_local const char* what = nullptr;
  return what;
}

bool& in_worker() {
  thread_local bool worker = false;
  return worker;
}

namespace {

using StreamPtr = std::shared_ptr<CUstream_st>;

struct Streams {
  std::mutex mutex;
  std::vector<StreamPtr> all;
  std::vector<StreamPtr> retired;  // Destroyed, until the host has waited for the device.
  std::map<int, CUstream_st*> legacy;
};

Streams& streams() {
  static auto* all = new Streams;  // Leaked: workers use it to the end.
  return *all;
}

CUstream_st* legacy(int device) {
  const std::lock_guard lock(streams().mutex);
  CUstream_st*& stream = streams().legacy[device];
  if (stream == nullptr) {
    streams().all.push_back(std::make_shared<CUstream_st>(
        device, cudaStreamDefault, 0, "the default stream of device " + std::to_string(device)));
    stream = streams().all.back().get();
  }
  return stream;
}

CUstream_st* of_thread(int device) {
  thread_local std::map<int, CUstream_st*> mine;
  CUstream_st*& stream = mine[device];
  if (stream == nullptr) stream = make_stream(device, cudaStreamDefault, 0);
  return stream;
}

// As they were made: that of LibTorch's pools is the same in each run.
std::string next_name(int device) {
  static std::mutex mutex;
  static auto* counts = new std::map<int, int>;
  const std::lock_guard lock(mutex);
  return "stream " + std::to_string((*counts)[device]++) + " of device " + std::to_string(device);
}

}  // namespace

CUstream_st* stream_of(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return legacy(current_device());
  if (handle == cudaStreamPerThread) return of_thread(current_device());
  const std::lock_guard lock(streams().mutex);
  const auto& all = streams().all;
  const bool lives = std::any_of(all.begin(), all.end(),
                                 [handle](const auto& one) { return one.get() == handle; });
  return lives ? handle : nullptr;
}

cudaError_t no_such_stream(cudaStream_t handle) {
  return fail(cudaErrorInvalidResourceHandle,
              "the stream " + hex(handle) + " was destroyed or never made");
}

CUstream_st& living_stream(cudaStream_t handle) {
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr) die("the stream " + hex(handle) + " was destroyed or never made");
  return *stream;
}

CUstream_st* make_stream(int device, unsigned flags, int priority) {
  auto stream = std::make_shared<CUstream_st>(device, flags, priority, next_name(device));
  const std::lock_guard lock(streams().mutex);
  streams().all.push_back(stream);
  return stream.get();
}

bool destroy_stream(cudaStream_t handle) {
  const std::lock_guard lock(streams().mutex);
  auto& all = streams().all;
  const auto at = std::find_if(all.begin(), all.end(),
                               [handle](const auto& one) { return one.get() == handle; });
  if (at == all.end()) return false;
  handle->retire();
  streams().retired.push_back(std::move(*at));
  all.erase(at);
  return true;
}

namespace {

// The destroyed ones included: what they were given is still work of the device.
template <class Wanted>
std::vector<StreamPtr> streams_that(Wanted wanted) {
  const std::lock_guard lock(streams().mutex);
  std::vector<StreamPtr> found;
  for (const auto* some : {&streams().all, &streams().retired}) {
    std::copy_if(some->begin(), some->end(), std::back_inserter(found), wanted);
  }
  return found;
}

}  // namespace

void order_with_legacy(CUstream_st& stream) {
  if (!stream.blocking() || stream.capture() != nullptr) return;
  CUstream_st* of_device = legacy(stream.device());
  const auto is_ordered = [&](const StreamPtr& other) {
    return other->device() == stream.device() && other->blocking() && other.get() != &stream &&
           other->capture() == nullptr && (&stream == of_device || other.get() == of_device);
  };
  for (const StreamPtr& other : streams_that(is_ordered)) {
    ordering::wait_for_stream(stream.id(), other->id());
    if (other->busy()) stream.wait(other->mark());
  }
}

void drain_device(int device) {
  for (const StreamPtr& stream :
       streams_that([&](const StreamPtr& one) { return one->device() == device; })) {
    stream->drain();
  }
}

void wait_for_device(int device) {
  const auto all = streams_that([&](const StreamPtr& one) { return one->device() == device; });
  for (const StreamPtr& stream : all) {
    const Clock known = ordering::now(stream->id());
    stream->drain();
    ordering::host_learns(known);
  }
  const std::lock_guard lock(streams().mutex);
  std::erase_if(streams().retired, [&](const StreamPtr& one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  });
}

}  // namespace spillway::emulated

using spillway::emulated::Mark;
using spillway::emulated::MarkPtr;
using spillway::emulated::settings;

CUstream_st::CUstream_st(int device, unsigned flags, int priority, std::string name)
    : device_(device),
      flags_(flags),
      priority_(priority),
      id_(spillway::emulated::ordering::add_stream(std::move(name))),
      random_(settings().seed * 7919 + static_cast<std::uint64_t>(id_)) {}

void CUstream_st::retire() {
  const std::lock_guard lock(mutex_);
  retired_ = true;
  pushed_.notify_one();
}

std::shared_ptr<spillway::emulated::Capture> CUstream_st::capture() const {
  const std::lock_guard lock(mutex_);
  return capture_;
}

void CUstream_st::capture_into(std::shared_ptr<spillway::emulated::Capture> capture) {
  const std::lock_guard lock(mutex_);
  capture_ = std::move(capture);
}

void CUstream_st::push(const char* what, Delay delay, std::function<void()> run) {
  if (const auto captured = capture()) {
    captured->add({what, delay, spillway::emulated::ordering::take_captured(id_), std::move(run)});
    return;
  }
  const std::lock_guard lock(mutex_);
  if (!started_) {
    started_ = true;
    std::thread([self = shared_from_this()] { self->work(); }).detach();
  }
  queue_.push_back({what, delay, std::move(run)});
  ++pushed_count_;
  pushed_.notify_one();
}

// Nothing wakes it up earlier: the length is what the seed says.
void CUstream_st::delay(std::unique_lock<std::mutex>& lock) {
  if (settings().delay_us == 0 || random_() % 100 >= settings().delay_pct) return;
  const std::chrono::microseconds length(random_() % settings().delay_us);
  never_.wait_for(lock, length, [] { return false; });
}

void CUstream_st::work() {
  spillway::emulated::in_worker() = true;
  std::unique_lock lock(mutex_);
  for (;;) {
    pushed_.wait(lock, [this] { return retired_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Task task = std::move(queue_.front());
    queue_.pop_front();
    if (task.delay == Delay::kBySettings) delay(lock);
    lock.unlock();
    spillway::emulated::running() = task.what;
    task.run();
    spillway::emulated::running() = nullptr;
    task.run = nullptr;
    lock.lock();
    ++finished_count_;
    finished_.notify_all();
  }
}

MarkPtr CUstream_st::mark() {
  auto mark = std::make_shared<Mark>();
  if (busy()) {
    push("event", Delay::kNever, [mark] { mark->pass(); });
  } else {
    mark->pass();
  }
  return mark;
}

void CUstream_st::wait(const MarkPtr& mark) {
  if (!mark->passed()) push("wait for an event", Delay::kNever, [mark] { mark->wait(); });
}

void CUstream_st::drain() {
  std::unique_lock lock(mutex_);
  const std::uint64_t upto = pushed_count_;
  finished_.wait(lock, [&] { return finished_count_ >= upto; });
}

bool CUstream_st::busy() {
  const std::lock_guard lock(mutex_);
  return finished_count_ < pushed_count_;
}
