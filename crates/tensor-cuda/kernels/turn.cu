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

// = the state before the first step
KERNEL reset_turn(Turn* turn, float loss_scale) {
    *turn = {0, 0.0f, 0, loss_scale, 0, 0, 0};
}
