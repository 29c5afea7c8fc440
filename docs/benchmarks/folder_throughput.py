"""Images a second from a folder of class folders: torchvision's ImageFolder and PyTorch's DataLoader, with the transforms of the
example `folder_throughput` of the crate train. Prints a JSON object a line.

pip install pillow torch torchvision; python docs/benchmarks/folder_throughput.py DIR/train [SIZE] [WORKERS] [EPOCHS]
"""

import json
import sys
import time

import torch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms import InterpolationMode, v2

folder = sys.argv[1]
size, workers, epochs = (int(sys.argv[k]) if len(sys.argv) > k else n for k, n in [(2, 224), (3, 2), (4, 3)])
torch.set_num_threads(1)
BILINEAR = InterpolationMode.BILINEAR
scaled = v2.Resize((size, size), interpolation=BILINEAR, antialias=True)
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
        rates = []
        # The first one starts the workers.
        for epoch in range(epochs + 1):
            start = time.perf_counter()
            for batch, labels in loader:
                pass
            rates.append(round(len(images) / (time.perf_counter() - start)))
        print(json.dumps({"decoder": decoder, "transforms": name, "workers": workers, "images_per_s": rates[1:]}), flush=True)
