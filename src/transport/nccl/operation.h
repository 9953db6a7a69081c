#pragma once

#include <memory>
#include <string>

#include "letters.h"
#include "message.h"
#include "nccl_api.h"
#include "spillway/device/device_span.h"
#include "spillway/transport/transport.h"

namespace spillway::transport::nccl {

/// What the device is to do with other ranks' devices.
struct Operation {
  enum class Kind : std::uint8_t {
    kSend,
    kReceive,
    kAllReduce,
    kReduceScatter,
    kAllGather,
    kBroadcast,
  };

  Kind kind = Kind::kSend;
  Circle circle{};
  Tag tag{};
  device::DeviceSpan from{};  ///< Read,
  device::DeviceSpan to{};    ///< and written.
  DataType type = DataType::kUint8;
  Bytes element = Bytes(1);  ///< Of that type.
  int root = 0;
  device::Event ready{};
  std::string name{};  ///< In errors: "value 7 from rank 0 to rank 1".
  std::shared_ptr<Message> message = std::make_shared<Message>();

  bool is_of_pair() const { return circle.group == 0; }
  Request request(Rank self) const;
  /// Why it cannot be done where `other` asks for `theirs` under its name.
  std::string misfit(Rank self, const Request& theirs, Rank other) const;
};

}  // namespace spillway::transport::nccl
