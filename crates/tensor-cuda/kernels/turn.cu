// The numbers that change from step to step. Geometry: one block of one thread.
#include "towers.cuh"

// = all that a replay needs
KERNEL set_turn(Turn* turn, u64 step, float lr, u32 first) {
    turn->step = step;
    turn->lr = lr;
    turn->first = first;
}

// = one of them, for ops that run as they are called
KERNEL set_step(Turn* turn, u64 step) { turn->step = step; }
KERNEL set_lr(Turn* turn, float lr) { turn->lr = lr; }
KERNEL set_first(Turn* turn, u32 first) { turn->first = first; }

// = the state before the first step, or before the next one of a run that goes on
KERNEL reset_turn(Turn* turn, float loss_scale, u32 good_steps) {
    *turn = {0, 0.0f, 0, loss_scale, good_steps, 0, 0};
}
