# golden: by name only (it measures and makes nothing, and needs a folder as its argument)
"""Measures with PyTorch how hard crate `cifar`'s synthetic set is: for a linear model, and for a small CNN.

usage: cargo run -p towers-cifar --example synthetic_records -- 0 DIR
       python tests/golden/cifar_synthetic.py DIR          (needs: pip install torch numpy)

The CNN is `keras_cnn`, 1,250,858 parameters, trained for two epochs of the default size (10,000 images).
Test accuracies once seen, seed 0:

    softmax regression on the pixels, Adam 1e-3 and 1e-4, batch 64, best of 12 epochs each     16.7%
    keras_cnn, Adam 1e-3, batch 64                                                             99.1%
    keras_cnn, RMSprop 1e-3, batch 64                                                          98.8%
    keras_cnn, RMSprop 1e-3, batch 128                                                         96.0%
    keras_cnn, RMSprop 1e-4, batch 32 (the MXNet tutorial's)                                   87.3%
"""
import pathlib
import sys

import numpy as np
import torch
from torch import nn

torch.set_num_threads(2)
folder = pathlib.Path(sys.argv[1])


def load(name):
    records = np.fromfile(folder / name, np.uint8).reshape(-1, 3073)
    images = records[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255
    return torch.from_numpy(images), torch.from_numpy(records[:, 0].astype(np.int64))


train, test = load("train.bin"), load("test.bin")


def fit(name, model, optimizer, batch, epochs):
    images, labels = train
    for epoch in range(epochs):
        model.train()
        for rows in torch.randperm(len(images)).split(batch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            scores = torch.cat([model(part) for part in test[0].split(500)])
        accuracy = (scores.argmax(1) == test[1]).float().mean().item()
        print(f"{name}, epoch {epoch + 1}: {accuracy:.4f}", flush=True)


def block(inputs, outputs):
    same, valid = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3)
    return [same, nn.ReLU(), valid, nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)]


def keras_cnn():
    head = [nn.Flatten(), nn.Linear(2304, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, 10)]
    model = nn.Sequential(*block(3, 32), *block(32, 64), *head)
    for layer in model:
        if hasattr(layer, "weight"):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    return model


torch.manual_seed(0)
for rate in (1e-3, 1e-4):
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))
    fit(f"linear, Adam {rate}", model, torch.optim.Adam(model.parameters(), rate), 64, 12)
for kind, rate, batch in (("RMSprop", 1e-3, 128), ("RMSprop", 1e-3, 64), ("RMSprop", 1e-4, 32), ("Adam", 1e-3, 64)):
    model = keras_cnn()
    options = {"alpha": 0.9, "eps": 1e-7} if kind == "RMSprop" else {}
    optimizer = getattr(torch.optim, kind)(model.parameters(), rate, **options)
    fit(f"keras_cnn, {kind} {rate}, batch {batch}", model, optimizer, batch, 2)
