"""Images a second on one core, 32x32 RGB: Keras' ImageDataGenerator and torchvision, operations as in the example
`throughput` of the crate augment. Prints a JSON object a line.

pip install keras_preprocessing==1.1.2 scipy numpy six pillow torch torchvision; python docs/benchmarks/augment_throughput.py
"""

import json
import statistics
import time
import warnings

import numpy as np
import torch
from keras_preprocessing.image import ImageDataGenerator
from torchvision.transforms import InterpolationMode, v2

warnings.simplefilter("ignore")
torch.set_num_threads(1)
IMAGES = (np.arange(512 * 32 * 32 * 3) * 31 % 251).astype("uint8").reshape(512, 32, 32, 3)
BILINEAR = InterpolationMode.BILINEAR


def rate(one_pass):
    one_pass()
    rounds = []
    for _ in range(5):
        start, passes = time.perf_counter(), 0
        while time.perf_counter() - start < 0.5:
            one_pass()
            passes += 1
        rounds.append(512 * passes / (time.perf_counter() - start))
    return statistics.median(rounds)


def keras(**options):
    flow = ImageDataGenerator(**options).flow(IMAGES, np.zeros(512), batch_size=64, seed=1)
    return rate(lambda: [next(flow) for _ in range(8)])


def torchvision(transform, images):
    def one_pass():
        for image in images:
            transform(image)

    return rate(one_pass)


shift = {"width_shift_range": 0.1, "height_shift_range": 0.1}
peers = {"keras_preprocessing 1.1.2": [
    ("shift+flip", lambda: keras(**shift, horizontal_flip=True)),
    ("rotation+zoom+shift+flip", lambda: keras(**shift, horizontal_flip=True, rotation_range=15, zoom_range=0.2)),
]}
to_float = v2.Compose([v2.PILToTensor(), v2.ToDtype(torch.float32)])
pictures = [v2.functional.to_pil_image(torch.from_numpy(image).permute(2, 0, 1)) for image in IMAGES]
tensors = [torch.from_numpy(image).permute(2, 0, 1).contiguous() for image in IMAGES]
move = v2.RandomAffine(0, translate=(0.1, 0.1), interpolation=BILINEAR)
turn = v2.RandomAffine(15, translate=(0.1, 0.1), scale=(0.8, 1.2), interpolation=BILINEAR)
crop = [v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip()]
for kind, images, last in [("pictures", pictures, [to_float]), ("tensors", tensors, [v2.ToDtype(torch.float32)])]:
    def measured(steps, images=images, last=last):
        return lambda: torchvision(v2.Compose([*steps, *last]), images)

    peers[f"torchvision on {kind}"] = [
        ("crop+flip", measured(crop)),
        ("shift+flip", measured([move, v2.RandomHorizontalFlip()])),
        ("rotation+zoom+shift+flip", measured([turn, v2.RandomHorizontalFlip()])),
        ("resized crop+flip", measured([v2.RandomResizedCrop(32, antialias=False), v2.RandomHorizontalFlip()])),
        ("rand_augment", measured([v2.RandAugment()])),
        ("trivial-augment-wide", measured([v2.TrivialAugmentWide()])),
        ("auto-augment:policy=cifar10", measured([v2.AutoAugment(v2.AutoAugmentPolicy.CIFAR10)])),
        ("aug-mix", measured([v2.AugMix()])),
        ("color-jitter:brightness=0.4,contrast=0.4,saturation=0.4,hue=0.1", measured([v2.ColorJitter(0.4, 0.4, 0.4, 0.1)])),
        ("random-perspective:p=1", measured([v2.RandomPerspective(p=1)])),
        ("gaussian-blur:kernel-size=3", measured([v2.GaussianBlur(3)])),
        ("random-horizontal-flip+trivial-augment-wide+random-erasing:p=0.25", lambda images=images, last=last: torchvision(
            v2.Compose([v2.RandomHorizontalFlip(), v2.TrivialAugmentWide(), *last, v2.RandomErasing(p=0.25)]), images)),
    ]
for peer, cases in peers.items():
    for operations, measure in cases:
        print(json.dumps({"peer": peer, "operations": operations, "images_per_s": round(measure())}), flush=True)
