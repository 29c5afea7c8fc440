#!/usr/bin/env python3
"""What PyTorch does on the same GPU: the peer of `towers bench --device cuda`.

usage: peer_torch.py MODEL --way eager|compile|graph|compiled-graph --precision fp32|tf32|bf16|fp16 [--batch N] [--seconds S] [--epoch]

Training steps on data that lies on the GPU: channels_last, fused SGD with momentum 0.9 (RMSprop for keras_cnn), autocast for bf16
and fp16. `graph` captures the whole step as a CUDA graph, `compiled-graph` that of the compiled network. With --epoch every step first cuts its batch out of a data set of
50,000 u8 images on the GPU, shifts (bilinear, up to 0.1 of the size), flips and normalizes it. Prints one JSON line.
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("model", choices=["keras_cnn", "minigooglenet", "resnet18"])
ap.add_argument("--way", choices=["eager", "compile", "graph", "compiled-graph"], default="eager")
ap.add_argument("--precision", choices=["fp32", "tf32", "bf16", "fp16"], default="fp32")
ap.add_argument("--batch", type=int, default=64)
ap.add_argument("--seconds", type=float, default=2.0)
ap.add_argument("--repeats", type=int, default=3)
ap.add_argument("--epoch", action="store_true")
ap.add_argument("--mode", default="max-autotune-no-cudagraphs", help="of torch.compile")
args = ap.parse_args()
device = torch.device("cuda")
torch.manual_seed(0)
torch.backends.cudnn.benchmark = True
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(args.precision)


class Unit(nn.Module):
    """Convolution, batch normalization, ReLU."""

    def __init__(self, inputs, outputs, kernel, stride=1, padding=0):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding)
        self.norm = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class Branches(nn.Module):
    def __init__(self, *branches):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)


def minigooglenet():
    layers, c = [Unit(3, 96, 3, 1, 1)], 96
    plan = [(32, 32), (32, 48), 80, (112, 48), (96, 64), (80, 80), (48, 96), 96, (176, 160), (176, 160)]
    for step in plan:
        if isinstance(step, tuple):
            layers.append(Branches(Unit(c, step[0], 1), Unit(c, step[1], 3, 1, 1)))
            c = sum(step)
        else:
            layers.append(Branches(Unit(c, step, 3, 2), nn.MaxPool2d(3, 2)))
            c += step
    return nn.Sequential(*layers, nn.AvgPool2d(7), nn.Dropout(0.5), nn.Flatten(), nn.Linear(c, 10))


def keras_cnn():
    conv = lambda i, o, p: [nn.Conv2d(i, o, 3, padding=p), nn.ReLU()]
    pool = [nn.MaxPool2d(2), nn.Dropout(0.25)]
    return nn.Sequential(
        *conv(3, 32, 1), *conv(32, 32, 0), *pool, *conv(32, 64, 1), *conv(64, 64, 0), *pool,
        nn.Flatten(), nn.Linear(64 * 36, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, 10))


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        conv = lambda i, size, step: nn.Conv2d(i, outputs, size, step, size // 2, bias=False)
        self.first, self.second = conv(inputs, 3, stride), conv(outputs, 3, 1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        same = stride == 1 and inputs == outputs
        self.short = nn.Identity() if same else nn.Sequential(conv(inputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + self.short(x))


def resnet18():
    layers, c = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    for outputs, stride in [(64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)]:
        layers.append(Block(c, outputs, stride))
        c = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 10))


net = {"keras_cnn": keras_cnn, "minigooglenet": minigooglenet, "resnet18": resnet18}[args.model]()
net = net.to(device).to(memory_format=torch.channels_last).train()
graph = args.way.endswith("graph")
capturable = {"capturable": True} if args.model == "keras_cnn" and graph else {}
if args.model == "keras_cnn":
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-4, alpha=0.9, eps=1e-7, **capturable)
else:
    lr, decay = (0.1, 5e-4) if args.model == "resnet18" else (5e-3, 0.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9, weight_decay=decay, fused=True)
scaler = torch.amp.GradScaler("cuda", enabled=args.precision == "fp16")
forward = torch.compile(net, mode=args.mode) if args.way.startswith("compile") else net

x = torch.randn(args.batch, 3, 32, 32, device=device).contiguous(memory_format=torch.channels_last)
y = torch.randint(0, 10, (args.batch,), device=device)
images = torch.randint(0, 256, (50_000, 32, 32, 3), dtype=torch.uint8, device=device)
labels = torch.randint(0, 10, (50_000,), device=device)
mean = torch.full((3, 32, 32), 120.0, device=device)


def load(order):
    """A batch of augmented images, into x and y."""
    picked = images[order].permute(0, 3, 1, 2).float() - mean
    n = picked.shape[0]
    theta = torch.zeros(n, 2, 3, device=device)
    theta[:, 0, 0] = torch.where(torch.rand(n, device=device) < 0.5, -1.0, 1.0)
    theta[:, 1, 1] = 1.0
    theta[:, :, 2] = (torch.rand(n, 2, device=device) - 0.5) * 0.4
    grid = F.affine_grid(theta, list(picked.shape), align_corners=False)
    x.copy_(F.grid_sample(picked, grid, padding_mode="border", align_corners=False))
    y.copy_(labels[order])


def step():
    optimizer.zero_grad(set_to_none=True)  # in a recording, gradients are written, not added
    with torch.autocast("cuda", dtype=HALF, enabled=HALF is not None):
        loss = F.cross_entropy(forward(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss


def captured():
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(side)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        loss = step()
    return lambda: (recorded.replay(), loss)[1]


began = time.perf_counter()
run = captured() if graph else step
loss = run()
torch.cuda.synchronize()
first = time.perf_counter() - began
for _ in range(10):
    run()


def timed():
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    if args.epoch:
        order = torch.randperm(50_000, device=device)
        for at in range(0, 50_000 - args.batch + 1, args.batch):
            load(order[at:at + args.batch])
            run()
            steps += 1
    else:
        while time.perf_counter() - began < args.seconds:
            for _ in range(32):
                run()
            steps += 32
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    return steps * args.batch / (time.perf_counter() - began)


rates = [timed() for _ in range(args.repeats)]
print(json.dumps({
    "peer": "torch", "version": torch.__version__, "way": args.way, "model": args.model, "mode": "epoch" if args.epoch else "train",
    "batch": args.batch, "precision": args.precision, "images_per_s": statistics.median(rates), "repeats": rates,
    "first_step_s": first, "last": float(loss), "device": torch.cuda.get_device_name()}))
