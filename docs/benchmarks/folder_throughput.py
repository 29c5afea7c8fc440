"""Images a second from a folder of class folders: torchvision's ImageFolder and PyTorch's DataLoader, with the transforms of the
example `folder_throughput` of the crate train. Prints a JSON object a line.

pip install pillow torch torchvision; python docs/benchmarks/folder_throughput.py DIR/train [SIZE] [WORKERS] [EPOCHS]

A DIR that does not exist is made: 720 JPEG files of 500x375 pixels and about 54 kB, of noise with the spectrum of photographs.
"""

import json
import multiprocessing
import os
import pathlib
import sys
import time

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms import InterpolationMode, v2



def make(folder, height=375, width=500):
    """Two classes of 360 pictures, of which 300 are to train on."""
    rng = np.random.default_rng(1)
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width))
    frequency[0, 0] = np.inf

    def noise():
        spectrum = (rng.normal(size=frequency.shape) + 1j * rng.normal(size=frequency.shape)) / frequency**1.3
        plane = np.fft.irfft2(spectrum, s=(height, width))
        return plane / plane.std()

    for k in range(720):
        planes = [128 + spread * noise() for spread in (45, 15, 15)]
        picture = Image.fromarray(np.stack(planes, -1).clip(0, 255).astype(np.uint8), "YCbCr").convert("RGB")
        split = folder / ("test" if k % 6 == 5 else "train") / "ab"[k // 360]
        split.mkdir(parents=True, exist_ok=True)
        picture.save(split / f"{k:03}.jpg", quality=82)


folder = sys.argv[1]
if not pathlib.Path(folder).exists():
    make(pathlib.Path(folder).parent)
size, workers, epochs = (int(sys.argv[k]) if len(sys.argv) > k else n for k, n in [(2, 224), (3, 2), (4, 3)])
torch.set_num_threads(1)
BILINEAR = InterpolationMode.BILINEAR
scaled = v2.Resize((size, size), interpolation=BILINEAR, antialias=True)


def cpu_seconds():
    """The CPU time of this process and of the loader's workers."""
    seconds = sum(os.times()[:2])
    for worker in multiprocessing.active_children():
        with open(f"/proc/{worker.pid}/stat") as stat:
            ticks = stat.read().rsplit(")", 1)[1].split()[11:13]
        seconds += sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return seconds


to_float = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
flip = [v2.RandomHorizontalFlip()]
shift = [*flip, v2.RandomAffine(0, translate=(0.1, 0.1), interpolation=BILINEAR)]
loaders = {
    "Pillow": {},
    "torchvision.io": {"loader": lambda path: decode_image(path, mode=ImageReadMode.RGB)},
}
for decoder, options in loaders.items():
    for name, random in [("flip", flip), ("flip+shift", shift)]:
        images = ImageFolder(folder, transform=v2.Compose([scaled, *random, *to_float]), **options)
        loader = DataLoader(images, batch_size=64, shuffle=True, num_workers=workers, persistent_workers=True)
        rates, cpu_ms = [], []
        # The first one starts the workers.
        for epoch in range(epochs + 1):
            start, cpu = time.perf_counter(), cpu_seconds()
            for batch, labels in loader:
                pass
            rates.append(round(len(images) / (time.perf_counter() - start)))
            cpu_ms.append(round((cpu_seconds() - cpu) * 1000 / len(images), 2))
        measured = {"images_per_s": rates[1:], "cpu_ms_an_image": cpu_ms[1:]}
        print(json.dumps({"decoder": decoder, "transforms": name, "workers": workers, **measured}), flush=True)
