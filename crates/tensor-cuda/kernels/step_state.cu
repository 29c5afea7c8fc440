// The numbers that change from step to step. Geometry: one block of one thread.
#include "towers.cuh"

// = all that a replay needs
KERNEL set_step_state(StepState* state, u64 step, float lr, u32 first) {
    state->step = step;
    state->lr = lr;
    state->first = first;
}

// = one of them, for ops that run as they are called
KERNEL set_step(StepState* state, u64 step) { state->step = step; }
KERNEL set_lr(StepState* state, float lr) { state->lr = lr; }
KERNEL set_first(StepState* state, u32 first) { state->first = first; }

// = the state before the first step, or before the next one of a run that goes on
KERNEL reset_step_state(StepState* state, float loss_scale, u32 good_steps) {
    *state = {0, 0.0f, 0, loss_scale, good_steps, 0, 0};
}
