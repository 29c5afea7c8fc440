"""Makes torch_models.json: networks of PyTorch in ONNX, as its exporters write them, with logits.

pip install torch numpy onnx onnxscript; python tests/golden/torch_models.py
Made with torch 2.15.0, numpy 2.4.6, onnx 1.23.2, onnxscript 0.7.2.

The graphs are in the folder torch_models. Images are `numbers`, which the test computes too. The exporter of
`torch.export` notes the lines of this file at each node, and that is taken out again.
"""

import json
import sys
from pathlib import Path

import onnx
import torch
from torch import nn
from torch.nn import functional as F

from shared.numbers import numbers

OUTPUT = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "torch_models"
BATCH, CLASSES = 2, 5


class LeNet(nn.Module):
    """Flattened by `view` with the batch of the input, as in PyTorch's first tutorial."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3)
        self.conv2 = nn.Conv2d(4, 6, 3)
        self.fc1 = nn.Linear(36, 8)
        self.fc2 = nn.Linear(8, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = x.view(x.size(0), -1)
        return F.log_softmax(self.fc2(F.dropout(F.relu(self.fc1(x)), training=self.training)), dim=1)


class Sizes(LeNet):
    """Flattened by the product of its extents."""

    def forward(self, x):
        x = F.max_pool2d(F.gelu(self.conv1(x)), 2)
        x = F.avg_pool2d(F.silu(self.conv2(x)), 2)
        size = x.size()[1:]
        return self.fc2(self.fc1(x.view(-1, size[0] * size[1] * size[2])))


class Padded(LeNet):
    """With zeros around what a pooling reads."""

    def forward(self, x):
        x = F.max_pool2d(F.pad(F.relu(self.conv1(x)), (0, 1, 1, 0)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(torch.clamp(self.fc1(torch.flatten(x, 1)), min=0))


class Normalized(nn.Module):
    """Pixels and groups are normalized, and what is flattened too."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.2, 0.25, 0.3]).view(1, 3, 1, 1))
        self.stem = nn.Conv2d(3, 8, 3, padding="same", bias=False)
        self.norm = nn.GroupNorm(4, 8)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.head = nn.Sequential(
            nn.Flatten(), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 6, bias=False), nn.ReLU(), nn.Linear(6, CLASSES)
        )

    def forward(self, x):
        x = (x / 0.5 - self.mean) / self.std
        return self.head(self.pool(F.silu(self.norm(self.stem(x)))))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.conv2, self.bn2 = nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.conv3, self.drop = nn.Conv2d(12, CLASSES, 1), nn.Dropout(0.25)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(x)) + x)
        x = self.conv3(self.drop(torch.cat([x, y], 1)))
        return (F.adaptive_avg_pool2d(x, 1) + F.adaptive_max_pool2d(x, 1)).squeeze(-1).squeeze(-1)


class Branches(nn.Module):
    """A flattened image beside another one: no layer's weights can take another order."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 2, 3), nn.Linear(20, CLASSES)

    def forward(self, x):
        return self.fc(torch.cat([self.conv(x).flatten(1), F.avg_pool2d(x, 2).flatten(1)], 1))


class Unit(nn.Module):
    """Normalizes values from 0 to 1."""

    def __init__(self, outputs=2):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, outputs)

    def forward(self, x):
        x = F.relu(self.conv((x - 0.49) / 0.247))
        return self.head(x.mean((2, 3)))


class Single(Unit):
    """The probability of one of two classes."""

    def __init__(self):
        super().__init__(1)

    def forward(self, x):
        return torch.sigmoid(super().forward(x))


def export(network, image, kind, file):
    """Writes the graph in one of the ways that users have."""
    one = torch.zeros(1, 3, *image)
    if kind in ["script", "sizes"]:
        axes = {"images": {0: "batch"}, "logits": {0: "batch"}}
        if kind == "sizes":
            axes["images"] |= {2: "rows", 3: "columns"}
        names = {"input_names": ["images"], "output_names": ["logits"], "dynamic_axes": axes}
        torch.onnx.export(network, (one,), file, dynamo=False, **names)
    elif kind == "training":
        mode = torch.onnx.TrainingMode.TRAINING
        torch.onnx.export(network, (one.expand(2, -1, -1, -1),), file, dynamo=False, training=mode, do_constant_folding=False)
    else:
        options = {"opset_version": 18, "optimize": kind == "export"}
        torch.onnx.export(network, (one,), file, dynamo=True, verbose=False, **options)
        model = onnx.load(file, load_external_data=False)
        model.graph.ClearField("value_info")
        for node in model.graph.node:
            node.ClearField("metadata_props")
            node.ClearField("doc_string")
        file.write_bytes(model.SerializeToString())


def write(name, network, image, kind):
    """Exports a network; returns its logits, which are computed in f64."""
    network.eval()
    file = OUTPUT / f"{name}.onnx"
    export(network, image, kind, file)
    images = numbers("images", (BATCH, *image, 3)).transpose(0, 3, 1, 2) * 2
    with torch.no_grad():
        logits = network.eval().double()(torch.from_numpy(images.copy()).double())
    return {"file": file.name, "image": image, "logits": logits.float().numpy().ravel().tolist()}


def shaken(network, seed):
    """With statistics and factors that are not those of a new network."""
    torch.manual_seed(seed)
    for module in network.modules():
        for name, low, high in [("running_mean", -0.3, 0.3), ("running_var", 0.5, 1.5)]:
            if getattr(module, name, None) is not None:
                getattr(module, name).uniform_(low, high)
        if isinstance(module, (nn.BatchNorm2d, nn.BatchNorm1d, nn.GroupNorm)):
            nn.init.uniform_(module.weight, 0.7, 1.3)
            nn.init.uniform_(module.bias, -0.3, 0.3)
    return network


def main():
    OUTPUT.mkdir(exist_ok=True)
    entries = []
    for seed, (network, image, kinds) in enumerate(
        [
            (LeNet, (18, 14), ["script", "plain", "training"]),
            (Sizes, (18, 14), ["script", "export"]),
            (Padded, (17, 13), ["export"]),
            (Normalized, (4, 4), ["script", "export"]),
            (Residual, (4, 6), ["export", "training", "sizes"]),
            (Branches, (4, 4), ["script"]),
            (Unit, (8, 8), ["script"]),
            (Single, (8, 8), ["script"]),
        ]
    ):
        for kind in kinds:
            torch.manual_seed(seed)
            name = f"{network.__name__.lower()}_{kind}"
            entries.append(write(name, shaken(network(), seed), image, kind))
    OUTPUT.with_suffix(".json").write_text(json.dumps(entries, indent=1) + "\n")


if __name__ == "__main__":
    main()
