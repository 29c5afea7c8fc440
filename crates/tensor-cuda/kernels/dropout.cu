// Dropout.
#include "towers.cuh"
