#include "archive_exchange.h"

#include <pthread.h>

#include <chrono>
#include <utility>

#include "first_rank.h"
#include "spillway/base/error.h"
#include "spillway/base/log.h"
#include "spillway/base/signals_blocked.h"
#include "staged_bytes.h"

namespace spillway::split {
namespace {

using pipeline::StorageOrdinal;

transport::Tag question(std::uint64_t number) {
  return {transport::Stream::kRequests, kFirstNumber + number};
}
transport::Tag answer_to(std::uint64_t number) {
  return {transport::Stream::kValues, kFirstNumber + number};
}

void wait(const device::Event& event) {
  const device::Outcome outcome = event.wait();
  if (!outcome.succeeded()) throw transport::TransportError("{}", outcome.error);
}

}  // namespace

ArchiveExchange::ArchiveExchange(runtime::Runtime& runtime, transport::Transport& transport,
                                 pipeline::Job& job, const DeviceBytes& devices)
    : runtime_(runtime), transport_(transport), job_(job), devices_(devices) {
  if (transport.rank() == kFirst) return;
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { answer(); });
  ::pthread_setname_np(thread_.native_handle(), "spill-archives");
}

ArchiveExchange::~ArchiveExchange() {
  if (thread_.joinable()) thread_.join();
}

void ArchiveExchange::fetch(Rank holder, StorageOrdinal storage, device::DeviceSpan memory) {
  const std::uint64_t number = asked_[holder]++;
  Question asked{storage.value(), job_.control().calls()};
  const device::Event sent = transport_.send(holder, question(number), device::host_span_of(asked));
  const auto what = [&] { return message("storage {}, for an archive,", storage.value()); };
  job_.wait(transport_.receive(holder, answer_to(number), memory), holder, what);
  job_.wait(sent, holder, what);
}

void ArchiveExchange::owe(StorageOrdinal storage, device::DeviceSpan bytes) {
  owe(storage, bytes, {});
}

void ArchiveExchange::owe(StorageOrdinal storage, const c10::Storage& bytes) {
  owe(storage, device::host_span(nullptr, Bytes(bytes.nbytes())), bytes);
}

void ArchiveExchange::owe(StorageOrdinal storage, device::DeviceSpan bytes,
                          const c10::Storage& on_device) {
  const std::lock_guard lock(mutex_);
  Owed& owed = owed_[storage];
  owed.bytes = bytes;
  owed.on_device = on_device;
  if (owed.times++ == 0) ++unpaid_;
  owed_behind_ = job_.control().calls();
  owes_.store(true);
  changed_.notify_all();
}

void ArchiveExchange::wait_for(StorageOrdinal storage) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    const auto found = owed_.find(storage);
    return found == owed_.end() || found->second.times == 0;
  });
  owed_.erase(storage);
}

void ArchiveExchange::wait_for_all() {
  {
    const std::lock_guard lock(mutex_);
    is_waited_for_ = true;
  }
  const bool has_paid = job_.wait_until(
      [&] {
        const std::lock_guard lock(mutex_);
        return unpaid_ == 0;
      },
      [] { return kFirst; }, [] { return "the archive that it writes"; }, owed_behind_);
  const std::lock_guard lock(mutex_);
  is_waited_for_ = false;
  forget_locked();
  if (has_paid) return;
  log_warning("the first rank has not written all of an archive that the program of rank {} has "
              "written: its file is incomplete or missing",
              transport_.rank().value());
}

void ArchiveExchange::forget_locked() {
  owed_.clear();
  unpaid_ = 0;
  owes_.store(false);
  changed_.notify_all();
}

void ArchiveExchange::stop() noexcept {
  if (transport_.rank() != kFirst) return;
  try {
    for (std::uint32_t i = 1; i < transport_.ranks(); ++i) {
      Question none{StorageOrdinal::kNone, 0};
      wait(transport_.send(Rank(i), question(asked_[Rank(i)]++), device::host_span_of(none)));
    }
  } catch (const Error& error) {
    log_error("{}", error.what());
  }
}

void ArchiveExchange::answer() {
  try {
    for (std::uint64_t number = 0;; ++number) {
      Question asked;
      wait(transport_.receive(kFirst, question(number), device::host_span_of(asked)));
      if (asked.storage == StorageOrdinal::kNone) return;
      pay(asked, number);
    }
  } catch (const transport::TransportError&) {
    // The job ends, which the program's own thread tells.
  } catch (const std::exception& error) {
    transport_.abort(message("a tensor cannot be sent to the first rank, which writes it into an "
                             "archive: {}",
                             error.what()));
  }
}

void ArchiveExchange::pay(const Question& asked, std::uint64_t number) {
  constexpr std::chrono::milliseconds kBetweenLooks(50);  // Calls of the program tell nobody.
  const StorageOrdinal storage(asked.storage);
  device::DeviceSpan bytes;
  c10::Storage on_device;
  {
    std::unique_lock lock(mutex_);
    while (true) {
      if (owes_any() && owed_behind_ < asked.calls) forget_locked();
      if (const auto found = owed_.find(storage); found != owed_.end()) {
        bytes = found->second.bytes;
        on_device = found->second.on_device;
        // Asked for again: the bytes have to stay while they are sent.
        if (found->second.times == 0) {
          found->second.times = 1;
          ++unpaid_;
        }
        break;
      }
      const bool has_archived_all = is_waited_for_ && job_.control().calls() == asked.calls;
      if (has_archived_all || job_.control().calls() > asked.calls)
        job_.abort(
            message("the first rank writes a tensor into an archive, storage {} behind call "
                    "{}, and the program of rank {} has gone on without: let all ranks save "
                    "at the same step, whatever clock, signal or number of the rank they see",
                    asked.storage, asked.calls, transport_.rank().value()));
      changed_.wait_for(lock, kBetweenLooks);
    }
  }
  StagedBytes staged(bytes.size);
  if (on_device) {
    devices_.copy_to_host(staged.span().data, on_device, 0, bytes.size.count());
    on_device = {};
  } else {
    staged.fill_from(runtime_, bytes.data);
  }
  wait(transport_.send(kFirst, answer_to(number), staged.span()));
  {
    const std::lock_guard lock(mutex_);
    const auto found = owed_.find(storage);
    const bool is_unpaid = found != owed_.end() && found->second.times > 0;
    if (is_unpaid && --found->second.times == 0) --unpaid_;
  }
  changed_.notify_all();
  job_.notify();
}

}  // namespace spillway::split
