// Copies to and from the device, fills, copies and activations.
#include "towers.cuh"
