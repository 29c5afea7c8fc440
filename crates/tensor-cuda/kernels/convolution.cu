// Convolutions and dense layers: forward, both backward passes, and what they keep beside the weights.
#include "towers.cuh"
