"""Makes layer_decay.json: timm's parameter groups of a ResNet-18 for layer-wise decay of the learning rate.

pip install timm; python tests/golden/layer_decay.py
Made with timm 1.0.31 and torch 2.15.0.

Each parameter has the factor of its learning rate, and whether it has a weight decay, sorted.
"""

import json
import pathlib

from timm.models import create_model
from timm.optim import param_groups_layer_decay

DECAY = 0.75

groups = param_groups_layer_decay(create_model("resnet18", num_classes=10), layer_decay=DECAY)
rows = sorted([group["lr_scale"], group["weight_decay"] > 0] for group in groups for _ in group["params"])
text = json.dumps({"layer_decay": DECAY, "resnet18": rows}, separators=(",", ":"))
(pathlib.Path(__file__).parent / "layer_decay.json").write_text(text + "\n")
