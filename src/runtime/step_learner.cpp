#include "spillway/runtime/step_learner.h"
namespace spillway::runtime {
struct StepLearner::State {};
StepLearner::StepLearner(const Options&) {}
StepLearner::~StepLearner() = default;
void StepLearner::begin_op(std::uint64_t, std::span<const RangeUse>, TimePoint, Advice&) {}
void StepLearner::allocated(RangeId, std::uint32_t) {}
void StepLearner::freed(RangeId) {}
void StepLearner::end_op(TimePoint, Advice&) {}
void StepLearner::step_boundary(TimePoint) {}
void StepLearner::update(const Options&) {}
LearnerReport StepLearner::report() const { return {}; }
}
