#pragma once
namespace spillway::recompute {
void register_odd_operators();
}
