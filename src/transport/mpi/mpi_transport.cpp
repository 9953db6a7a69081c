#include <atomic>
#include <memory>

#include "messenger.h"
#include "spillway/transport/mpi.h"

namespace spillway::transport {
namespace {

std::atomic<bool> is_in_use{false};

/// MPI is one per process.
struct Turn {
  Turn() {
    if (is_in_use.exchange(true)) throw Error("this process has an MPI transport already");
  }
  ~Turn() { is_in_use.store(false); }
};

void check_place(Tag tag, const device::DeviceSpan& bytes) {
  if (!bytes.device.is_host())
    throw UnsupportedError("{} is on {}, and MPI is given memory of the host only", tag,
                           bytes.device);
}

class MpiRank final : public MpiTransport {
 public:
  MpiRank(std::unique_ptr<Turn> turn, std::unique_ptr<mpi::Messenger> messenger)
      : MpiTransport(messenger->rank(), messenger->ranks()),
        turn_(std::move(turn)),
        messenger_(std::move(messenger)) {}

  const MpiJob& job() const override { return messenger_->job(); }
  std::unique_ptr<Notifier> make_notifier(std::optional<Stream> stream) override {
    return messenger_->make_notifier(stream);
  }
  [[noreturn]] void abort(const std::string& reason) override { messenger_->abort(reason); }

 private:
  device::Event do_send(Rank to, Tag tag, device::DeviceSpan bytes) override {
    check_place(tag, bytes);
    return messenger_->send(to, tag, bytes);
  }
  device::Event do_receive(Rank from, Tag tag, device::DeviceSpan bytes) override {
    check_place(tag, bytes);
    return messenger_->receive(from, tag, bytes);
  }

  const std::unique_ptr<Turn> turn_;
  const std::unique_ptr<mpi::Messenger> messenger_;
};

}  // namespace

std::unique_ptr<MpiTransport> make_mpi_transport(const MpiOptions& options) {
  auto turn = std::make_unique<Turn>();
  auto messenger = std::make_unique<mpi::Messenger>(options);
  return std::make_unique<MpiRank>(std::move(turn), std::move(messenger));
}

}  // namespace spillway::transport
