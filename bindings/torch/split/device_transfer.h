#pragma once

#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <list>
#include <optional>

#include "device_messages.h"

namespace spillway::split {

/// One side of a message: of a storage where it lies, or, where storages of its size have pages,
/// which move, in pieces. Operators on the default stream copy these from or to small storages,
/// which have none. One thread.
class DeviceMessages::Transfer {
 public:
  /// `storage`: what is sent; of what is received, where it has a place already, else empty.
  Transfer(DeviceMessages& all, Rank peer_in_job, transport::Tag tag, bool sends,
           c10::Storage storage, c10::Device device, Bytes size);
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  /// Does what the pieces allow that have come or gone, and never waits for another rank. Returns
  /// how the whole has ended, once it has.
  std::optional<device::Outcome> advance();
  /// Whether operators may be given what is received, and where that is.
  bool may_be_used() const;
  const c10::Storage& storage() const { return storage_; }

 private:
  struct Piece {
    std::size_t begin = 0;
    c10::Storage bytes;
    device::Event event;
  };

  void begin_whole();
  void begin_pieces();
  void take(const Piece& piece);

  DeviceMessages& all_;
  const Rank peer_;
  const transport::Tag tag_;
  const bool sends_;
  const c10::Device device_;
  const std::size_t size_;
  const bool is_in_pieces_;
  c10::Storage storage_;
  std::list<Piece> under_way_;  ///< Or all of the storage.
  std::size_t begun_ = 0;       ///< Bytes.
};

}  // namespace spillway::split
