#pragma once

#include <array>
#include <cstdint>

/// The words of MT19937 (Matsumoto and Nishimura 1998), 32 bits each, as they are before tempering.
/// Generators hand out a block of them, then make the next one. Pure; any thread.
namespace spillway::mersenne_twister {

constexpr std::size_t kWords = 624;  ///< Of a block.
using Block = std::array<std::uint32_t, kWords>;

/// Makes the next block of one, in about 0.2 us.
void next_block(Block& block);

/// Makes the block that lies so many behind one: one after the other, or by `jump` where that
/// takes less time.
void skip_blocks(Block& block, std::uint64_t blocks);

/// The same at once, in 1 to 3 ms, for any number, which is more than 0. F2-linear jump ahead
/// (Haramoto, Matsumoto, Nishimura, Panneton and L'Ecuyer 2008).
void jump(Block& block, std::uint64_t blocks);

}  // namespace spillway::mersenne_twister
