// Steps of optimizers and running averages over flat arenas, and the meter of the losses.
#include "towers.cuh"
