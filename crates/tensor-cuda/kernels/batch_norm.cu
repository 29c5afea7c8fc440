// Batch normalization with its activation.
#include "towers.cuh"
