// Largest and mean elements of windows.
#include "towers.cuh"
