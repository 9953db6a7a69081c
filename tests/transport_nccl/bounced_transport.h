#pragma once

#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "spillway/device/device.h"
#include "spillway/transport/nccl/nccl_transport.h"

namespace spillway::transport {

/// Carries bytes of the host by way of the device: copied there before they are sent, and back when
/// they have come. So a transport of devices passes the suites of every transport.
class BouncedTransport final : public Transport {
 public:
  BouncedTransport(NcclTransport& inner, device::Device& device)
      : Transport(inner.rank(), inner.ranks()),
        inner_(inner),
        device_(device),
        queue_(device.make_queue("bounces")) {}

  std::unique_ptr<Notifier> make_notifier(std::optional<Stream> stream) override {
    return inner_.make_notifier(stream);
  }
  [[noreturn]] void abort(const std::string& reason) override {
    inner_.abort(reason);
    std::abort();  // Not reached.
  }

 private:
  /// Ends when the bytes are back on the host.
  class Bounce final : public device::EventState {
   public:
    Bounce(BouncedTransport& owner, device::DeviceSpan host)
        : EventState(device::DeviceId()), owner_(owner), host_(host) {
      if (host.size > Bytes()) memory_ = owner.device_.allocate(host.size);
    }

    /// What NCCL is given.
    device::DeviceSpan span() const {
      return {owner_.device_.id(), memory_.span().data, host_.size};
    }
    void expect(const device::Event& moved, bool is_fetched) {
      moved_ = moved;
      is_fetched_ = is_fetched;
    }

    bool is_done() const override {
      if (!moved_.is_done()) return false;
      fetch();
      return true;
    }
    device::Outcome wait() const override {
      device::Outcome outcome = moved_.wait();
      if (outcome.succeeded()) fetch();
      return outcome;
    }
    Duration time_since(const EventState& earlier) const override {
      return moved_.state()->time_since(*dynamic_cast<const Bounce&>(earlier).moved_.state());
    }

   private:
    void fetch() const {
      const std::lock_guard lock(owner_.mutex_);
      if (std::exchange(is_fetched_, true) || !moved_.wait().succeeded()) return;
      if (host_.size == Bytes()) return;
      owner_.queue_->copy(host_, span());
      owner_.queue_->record().wait();
    }

    BouncedTransport& owner_;
    const device::DeviceSpan host_;
    device::DeviceMemory memory_;
    device::Event moved_;
    mutable bool is_fetched_ = false;
  };

  device::Event do_send(Rank to, Tag tag, device::DeviceSpan bytes) override {
    const auto bounce = std::make_shared<Bounce>(*this, bytes);
    if (bytes.size > Bytes()) queue_->copy(bounce->span(), bytes);
    bounce->expect(inner_.send(to, tag, bounce->span(), queue_->record()), true);
    return keep(bounce);
  }
  device::Event do_receive(Rank from, Tag tag, device::DeviceSpan bytes) override {
    const auto bounce = std::make_shared<Bounce>(*this, bytes);
    bounce->expect(inner_.receive(from, tag, bounce->span()), false);
    return keep(bounce);
  }

  /// Until this dies, since nobody need keep the event of a message.
  device::Event keep(const std::shared_ptr<Bounce>& bounce) {
    const std::lock_guard lock(mutex_);
    kept_.push_back(bounce);
    return device::Event(bounce);
  }

  NcclTransport& inner_;
  device::Device& device_;
  const std::unique_ptr<device::Queue> queue_;
  std::mutex mutex_;
  std::deque<std::shared_ptr<Bounce>> kept_;
};

}  // namespace spillway::transport
