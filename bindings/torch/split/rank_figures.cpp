#include "rank_figures.h"

#include <string>

#include "first_rank.h"

namespace spillway::split {

std::vector<runtime::RankFigures> gather_figures(transport::Transport& transport,
                                                 pipeline::Job& job, runtime::RankFigures mine) {
  return gathered(transport, kFigures, mine, [&](const device::Event& event, Rank peer) {
    job.wait(event, peer, [] { return std::string("the figures of a rank at the end"); });
  });
}

}  // namespace spillway::split
