#pragma once

#include <nlohmann/json_fwd.hpp>

#include "spillway/topology/link_rate.h"

namespace spillway {
class JsonObject;
}

namespace spillway::topology {

/// A link as the file of rates keeps it.
nlohmann::ordered_json to_json(const LinkRate& rate);

/// Throws ConfigError with the place of what is missing, or that no link has.
LinkRate link_from(JsonObject& json);

}  // namespace spillway::topology
