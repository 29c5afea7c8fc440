// What the stand-ins for the libraries ask the stand-in for the driver for.
#pragma once

#include "api.h"
#include <functional>
#include <vector>

// Bytes of a device's memory.
struct Place {
    CUdeviceptr at;
    size_t bytes;
};

extern "C" {
// The context that is current on this thread, or null.
CUcontext fake_context();

// The number of a context's device.
int fake_device(CUcontext context);

// A call fails: what is captured of the stream is spoiled, or the device is lost.
void fake_spoil(CUstream stream);
void fake_break(CUcontext context);
bool fake_is_captured(CUstream stream);

// Asks a stream for work, or writes it down, as a launch of a kernel does. The places are in memory of the stream's device when it
// is asked for and when it is done, and nothing is written beside that memory.
CUresult fake_work(const char* name, CUstream stream, const std::vector<Place>& places, const std::function<void()>& work);
}
