// Softmax and the loss.
#include "towers.cuh"
