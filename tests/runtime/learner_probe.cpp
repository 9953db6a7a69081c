#include <cstdio>
#include <cstring>
#include "support/synthetic_trainers.h"
using namespace spillway::testing;
int main(int argc, char** argv) {
  struct Case { const char* name; std::unique_ptr<SyntheticTrainer> (*make)(); };
  const Case cases[] = {
    {"unet", []{ return make_unet({}); }}, {"gpt", []{ return make_transformer({}); }},
    {"gpt-acc", []{ TransformerSizes s; s.micro_batches = 3; return make_transformer(s); }},
    {"mlp", []{ return make_mlp({}); }}, {"mlp-keep", []{ MlpSizes s; s.keeps_gradients=true; return make_mlp(s);}},
    {"eval", []{ return make_evaluating(3, 3); }}, {"uneven", []{ return make_uneven(4); }},
    {"gan", []{ return make_gan(); }}, {"sampler", []{ return make_sampler(); }}};
  const bool hints = argc < 4 || std::strcmp(argv[3], "nohints") != 0;
  const int steps = argc > 4 ? atoi(argv[4]) : 12;
  for (const Case& c : cases) {
    if (argc > 1 && std::strcmp(argv[1], "all") && std::strcmp(argv[1], c.name)) continue;
    std::uint32_t peak = 0; double compute=0;
    { PagingSimulation run({}); auto t = c.make(); for (int i = 0; i < 4; ++i) { t->run_step(run, i); auto k = run.take_counts(); compute=k.seconds; } peak = run.live_peak(); }
    const double share = argc > 2 ? atof(argv[2]) : 0.5;
    PagingSimulation::Options o; o.budget_pages = peak * share; o.announces_steps = hints;
    std::printf("%s: peak %u budget %u compute %.3f excess %u\n", c.name, peak, o.budget_pages, compute, peak - o.budget_pages);
    PagingSimulation::Options l = o; l.follows_advice = false;
    try {
    PagingSimulation run(o), lru(l); auto t = c.make(), u = c.make();
    for (int i = 0; i < steps; ++i) {
      t->run_step(run, i); u->run_step(lru, i);
      auto k = run.take_counts(); auto m = lru.take_counts();
      auto r = run.learner().report();
      std::printf("  %2d miss %3lu forced %4lu w %5lu r %5lu stall %.3f t %.3f | lru miss %3lu w %5lu r %5lu t %.3f | dev %lu shapes %u plans %lu slots %u planned %.3f bound %.3f w %lu r %lu fill %.2f\n",
        i, k.missed_ranges, k.forced_pages, k.written_pages, k.read_pages, k.stall_seconds, k.seconds,
        m.missed_ranges, m.written_pages, m.read_pages, m.seconds, r.deviations, r.shapes, r.plans, r.plan_steps, r.planned_seconds, r.bound_seconds, r.planned_write_pages, r.planned_read_pages, r.filled_share);
    }
    } catch (const std::exception& e) { std::printf("  %s\n", e.what()); }
  }
}
