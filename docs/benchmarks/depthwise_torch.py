"""The time of PyTorch's depthwise convolutions, beside `cargo run --release -p towers-tensor-cpu --example depthwise_bench`.

    python3 docs/benchmarks/depthwise_torch.py [THREADS] [LAYER]

For each layer: milliseconds forward, for the gradient of the input, and for that of the weights; eager, channels_last, the
smallest of many times. With one thread, time is the processor's.
"""

import sys
import time

import torch

LAYERS = [
    (112, 32, 3, 1), (112, 96, 3, 2), (56, 144, 3, 1), (56, 144, 3, 2), (28, 192, 3, 1), (28, 192, 3, 2),
    (14, 576, 3, 1), (14, 576, 3, 2), (7, 960, 3, 1), (56, 144, 5, 2), (28, 240, 5, 1), (14, 672, 5, 1),
    (56, 96, 7, 1), (14, 384, 7, 1),
]
BATCH = 16


def timed(call):
    call()
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    begin, times = time.perf_counter(), []
    while len(times) < 5 or (time.perf_counter() - begin < 0.3 and len(times) < 1000):
        start = clock()
        call()
        times.append(clock() - start)
    return 1e3 * min(times)


def passes(side, channels, kernel, stride):
    nhwc = torch.channels_last
    x = torch.rand(BATCH, channels, side, side).to(memory_format=nhwc)
    w = torch.rand(channels, 1, kernel, kernel).to(memory_format=nhwc)
    pad = [kernel // 2] * 2
    y = torch.nn.functional.conv2d(x, w, None, stride, pad, 1, channels)
    dy = torch.rand_like(y)

    def gradient(of_input, of_weights):
        torch.ops.aten.convolution_backward(
            dy, x, w, None, [stride] * 2, pad, [1, 1], False, [0, 0], channels, [of_input, of_weights, False]
        )

    with torch.no_grad():
        forward = timed(lambda: torch.nn.functional.conv2d(x, w, None, stride, pad, 1, channels))
        return forward, timed(lambda: gradient(True, False)), timed(lambda: gradient(False, True))


threads = int(sys.argv[1]) if len(sys.argv) > 1 and int(sys.argv[1]) else torch.get_num_threads()
torch.set_num_threads(threads)
print(f"PyTorch {torch.__version__}, {threads} threads")
for side, channels, kernel, stride in LAYERS:
    name = f"{side}x{side}x{channels} {kernel}x{kernel}/{stride}"
    if len(sys.argv) <= 2 or sys.argv[2] in name:
        print(f"{name:20}" + "".join(f"{ms:9.3f}" for ms in passes(side, channels, kernel, stride)), flush=True)
