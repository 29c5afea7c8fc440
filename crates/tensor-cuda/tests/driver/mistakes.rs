//! Wrong calls, one by one: the stand-in refuses them as the driver does.

use core::ptr::null_mut;
use cudarc::driver::sys::{self, CUresult as E};

/// Asserts the result of a call.
fn is(expected: E, got: E) {
    assert_eq!(got, expected);
}

fn stream() -> sys::CUstream {
    let mut stream = null_mut();
    // SAFETY: it writes the stream.
    is(E::CUDA_SUCCESS, unsafe { sys::cuStreamCreate(&raw mut stream, 1) });
    stream
}

fn event(flags: sys::CUevent_flags) -> sys::CUevent {
    let mut event = null_mut();
    // SAFETY: it writes the event.
    is(E::CUDA_SUCCESS, unsafe { sys::cuEventCreate(&raw mut event, flags as u32) });
    event
}

pub fn all() {
    // SAFETY: the stand-in looks at every handle before it uses it.
    unsafe {
        let (mut context, mut memory, mut graph) = (null_mut(), 0, null_mut());
        is(E::CUDA_ERROR_NOT_INITIALIZED, sys::cuDeviceGetCount(&mut 0));
        is(E::CUDA_SUCCESS, sys::cuInit(0));
        is(E::CUDA_ERROR_INVALID_DEVICE, sys::cuDeviceGet(&mut 0, 1));
        is(E::CUDA_ERROR_INVALID_CONTEXT, sys::cuMemAlloc_v2(&raw mut memory, 4));
        is(E::CUDA_SUCCESS, sys::cuDevicePrimaryCtxRetain(&raw mut context, 0));
        is(E::CUDA_SUCCESS, sys::cuCtxSetCurrent(context));
        is(E::CUDA_SUCCESS, sys::cuMemAlloc_v2(&raw mut memory, 4));
        let timeless = || event(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING);
        let (one, two, inside, outside) = (stream(), stream(), timeless(), timeless());
        // Past the end, and to missing memory.
        is(E::CUDA_ERROR_INVALID_VALUE, sys::cuMemsetD8Async(memory, 0, 5, one));
        is(E::CUDA_ERROR_INVALID_VALUE, sys::cuMemFree_v2(memory + 1));
        is(E::CUDA_ERROR_INVALID_HANDLE, sys::cuStreamSynchronize(null_mut()));
        is(E::CUDA_ERROR_INVALID_IMAGE, sys::cuModuleLoadData(&mut null_mut(), [0_u8; 64].as_ptr().cast()));
        // Page-locked memory is read when the copy happens, other memory at once.
        let mut locked = null_mut();
        is(E::CUDA_SUCCESS, sys::cuMemHostAlloc(&raw mut locked, 4, 0));
        let (locked, mut plain, mut back) = (locked.cast::<u32>(), 1_u32, 0_u32);
        let read = |back: &mut u32| {
            is(E::CUDA_SUCCESS, sys::cuMemcpyDtoHAsync_v2((&raw mut *back).cast(), memory, 4, one));
        };
        is(E::CUDA_SUCCESS, sys::cuMemcpyHtoDAsync_v2(memory, (&raw const plain).cast(), 4, one));
        plain += 1;
        read(&mut back);
        assert_eq!((plain, back), (2, 1));
        locked.write(3);
        is(E::CUDA_SUCCESS, sys::cuMemcpyHtoDAsync_v2(memory, locked.cast(), 4, one));
        locked.write(4);
        read(&mut back);
        assert_eq!(back, 4, "a place was written to before it was free, and it does not show");
        // Streams wait for each other only where they are told to.
        is(E::CUDA_SUCCESS, sys::cuMemsetD8Async(memory, 7, 4, two));
        is(E::CUDA_ERROR_NOT_READY, sys::cuStreamQuery(two));
        is(E::CUDA_SUCCESS, sys::cuStreamSynchronize(two));
        is(E::CUDA_SUCCESS, sys::cuMemsetD8Async(memory, 8, 4, two));
        read(&mut back);
        assert_eq!(back, 0x0707_0707);
        is(E::CUDA_SUCCESS, sys::cuEventRecord(outside, two));
        is(E::CUDA_SUCCESS, sys::cuStreamWaitEvent(one, outside, 0));
        read(&mut back);
        assert_eq!(back, 0x0808_0808);
        // Captures: what spoils them, who has to come back, and what they leave behind.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        let mut end = |expected| is(expected, sys::cuStreamEndCapture(one, &raw mut graph));
        let begin = || is(E::CUDA_SUCCESS, sys::cuStreamBeginCapture_v2(one, mode));
        end(E::CUDA_ERROR_ILLEGAL_STATE);
        begin();
        is(E::CUDA_ERROR_ILLEGAL_STATE, sys::cuStreamBeginCapture_v2(one, mode));
        is(E::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, sys::cuMemAlloc_v2(&mut 0, 4));
        is(E::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, sys::cuMemsetD8Async(memory, 0, 4, one));
        end(E::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        begin();
        is(E::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, sys::cuStreamSynchronize(one));
        end(E::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        begin();
        is(E::CUDA_ERROR_STREAM_CAPTURE_ISOLATION, sys::cuStreamWaitEvent(one, outside, 0));
        end(E::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        begin();
        is(E::CUDA_SUCCESS, sys::cuEventRecord(inside, one));
        is(E::CUDA_SUCCESS, sys::cuStreamWaitEvent(two, inside, 0));
        is(E::CUDA_SUCCESS, sys::cuMemsetD8Async(memory, 9, 4, two));
        end(E::CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
        is(E::CUDA_ERROR_CAPTURED_EVENT, sys::cuEventQuery(inside));
        begin();
        let another = std::thread::spawn({
            let (context, one) = (context as usize, one as usize);
            move || {
                is(E::CUDA_SUCCESS, sys::cuCtxSetCurrent(context as sys::CUcontext));
                let ended = sys::cuStreamEndCapture(one as sys::CUstream, &mut null_mut());
                is(E::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, ended);
            }
        });
        another.join().unwrap();
        // A fork and a join: the graph does both streams' work in order, at every launch.
        is(E::CUDA_SUCCESS, sys::cuEventRecord(inside, one));
        is(E::CUDA_SUCCESS, sys::cuStreamWaitEvent(two, inside, 0));
        is(E::CUDA_SUCCESS, sys::cuMemsetD8Async(memory, 9, 4, two));
        is(E::CUDA_SUCCESS, sys::cuEventRecord(inside, two));
        is(E::CUDA_SUCCESS, sys::cuStreamWaitEvent(one, inside, 0));
        is(E::CUDA_SUCCESS, sys::cuMemsetD8Async(memory, 10, 2, one));
        end(E::CUDA_SUCCESS);
        let mut ready = null_mut();
        is(E::CUDA_SUCCESS, sys::cuGraphInstantiateWithFlags(&raw mut ready, graph, 0));
        is(E::CUDA_SUCCESS, sys::cuGraphDestroy(graph));
        is(E::CUDA_SUCCESS, sys::cuGraphLaunch(ready, one));
        read(&mut back);
        assert_eq!(back, 0x0909_0a0a);
        is(E::CUDA_SUCCESS, sys::cuGraphExecDestroy(ready));
        is(E::CUDA_ERROR_INVALID_VALUE, sys::cuGraphLaunch(ready, one));
        // What is left over is found in the end.
        is(E::CUDA_SUCCESS, sys::cuDevicePrimaryCtxRelease_v2(0));
        is(E::CUDA_ERROR_CONTEXT_IS_DESTROYED, sys::cuStreamSynchronize(one));
    }
    println!("all were found");
}
