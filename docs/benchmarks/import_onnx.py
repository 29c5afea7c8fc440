"""Which ONNX graphs of real networks are read, and how far their class scores are from PyTorch's in float64, or ONNX Runtime's.

usage: import_onnx.py BINARY OUT.jsonl GROUP [PATTERN]

BINARY is `target/release/examples/onnx_logits` (cargo build --release -p towers-interchange --example onnx_logits). The groups are

    torchvision    all CNNs of torchvision's classification models, by both of PyTorch's exporters
    light          onnx/backend/test/data/light of the package onnx, with random weights: its own are all alike
    timm           100 CNNs of timm, drawn with the seed 44: all by the older exporter, then by the newer one, which takes ten times as long
    drawn          only prints their names

PATTERN keeps the names that match it. A row is appended for each graph; graphs with a row are left out, so that it can go on.
`import_onnx.py table OUT.jsonl` prints a table in Markdown, and fails if too few are right. Needs torch, torchvision, timm, onnx, onnxscript, onnxruntime.

All networks have random weights, and the statistics of batch normalization of a few random batches.
"""

import json
import random
import re
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

BATCH = 2
SEED = 44

# The part of a group that must be right, if not all.
TARGET = {"timm": 0.85}

# Files of timm with networks of convolutions alone, but for hybrids with transformers and attention over pixels.
TIMM = """byobnet convnext cspnet csatv2 densenet dla dpn efficientnet fasternet ghostnet hardcorenas hgnet hrnet inception_next
inception_resnet_v2 inception_v3 inception_v4 mobilenetv3 mobilenetv5 nasnet nfnet pnasnet regnet repghost repvit res2net resnest resnet
resnetv2 rexnet selecsls senet sknet starnet tresnet vgg vovnet xception xception_aligned mambaout rdnet starnet""".split()
ATTENTION = "botnet|halonet|lambda|sehalo|lamhalo|eca_bot|gcvit|swin|vit|coat|haloregnet|bat_|clip|visformer"


def torchvision_names():
    from torchvision import models

    names = models.list_models(module=models)
    return [name for name in names if not re.search("vit|swin|maxvit", name)]


def timm_names():
    import timm

    names = []
    for module in sorted(set(TIMM)):
        names += timm.list_models(module=module)
    names = sorted({name for name in names if not re.search(ATTENTION, name)})
    return random.Random(SEED).sample(names, 100)


def made(group, name):
    """The network, and the side of its images."""
    if group == "torchvision":
        from torchvision import models

        options = {"aux_logits": False} if name in ("googlenet", "inception_v3") else {}
        if options:
            # As with pretrained weights.
            options |= {"transform_input": True, "init_weights": True}
        return models.get_model(name, weights=None, **options), 299 if name == "inception_v3" else 224
    import timm

    model = timm.create_model(name, pretrained=False)
    side = model.default_cfg.get("input_size", (3, 224, 224))[-1]
    return model, min(side, 320) if not model.default_cfg.get("fixed_input_size") else side


def settled(model, side):
    """Statistics of batches of random images, so that a wrong one is seen."""
    import torch

    model.train()
    torch.manual_seed(SEED)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
                module.momentum = 0.5
                if module.affine:
                    module.weight.uniform_(0.5, 1.5)
                    module.bias.uniform_(-0.2, 0.2)
        for _ in range(2):
            model(torch.randn(BATCH, 3, side, side))
    return model.eval()


def exported(model, side, dynamo, file):
    import torch

    images = torch.randn(BATCH, 3, side, side)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            torch.onnx.export(model, (images,), file, dynamo=True, verbose=False, external_data=False)
        else:
            torch.onnx.export(model, (images,), file, dynamo=False)


def filled(file, folder):
    """A graph with random weights in place of those that are a number and a shape."""
    import onnx
    from onnx import numpy_helper

    model, draw = onnx.load(file), np.random.default_rng(SEED)
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape" or node.input[0] not in shapes:
            kept.append(node)
            continue
        shape = shapes[node.input[0]].astype(int)
        value = next((numpy_helper.to_array(own.t) for own in node.attribute), np.zeros(1, np.float32))
        if value.dtype != np.float32:
            kept.append(node)
            continue
        if len(shape) > 1:
            inputs = shape[1:].prod() if len(shape) == 4 else max(shape[1:])
            weights = draw.standard_normal(shape, np.float32) * np.float32((2 / inputs) ** 0.5)
        else:
            weights = draw.uniform(0.5, 1.5, shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weights, node.output[0]))
    # Random networks are sure of themselves: probabilities of 0 and 1 would hide a difference.
    if kept[-1].op_type == "Softmax":
        model.graph.output[0].name = kept.pop().input[0]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    made = Path(folder) / "net.onnx"
    onnx.save(model, made)
    return made


def drawn(batch, side):
    return np.random.default_rng(SEED).standard_normal((batch, 3, side, side), np.float32)


def of_pytorch(model, side):
    """The images, their scores in float64, and how far PyTorch's own in float32 are from those."""
    import torch

    images = drawn(BATCH, side)
    with torch.no_grad():
        in_float32 = model(torch.from_numpy(images)).numpy()
        theirs = model.double()(torch.from_numpy(images).double()).numpy()
    return images, theirs, float(abs(in_float32 - theirs).max() / abs(theirs).max())


def of_onnxruntime(file, side):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(str(file), options, ["CPUExecutionProvider"])
    own = session.get_inputs()[0]
    images = drawn(own.shape[0] if isinstance(own.shape[0], int) else BATCH, side)
    return images, session.run(None, {own.name: images})[0], None


def compared(binary, file, side, images, theirs, rounding):
    batch = len(images)
    theirs = theirs.reshape(batch, -1).astype(np.float64)
    own = np.ascontiguousarray(images.transpose(0, 2, 3, 1)).tobytes()
    begun = time.monotonic()
    run = subprocess.run([binary, file, str(side), str(side)], input=own, capture_output=True)
    seconds = time.monotonic() - begun
    told = run.stderr.decode().splitlines()
    if run.returncode:
        return {"error": next((line for line in reversed(told) if line.startswith("error")), told[-1] if told else "?")}
    ours = np.frombuffer(run.stdout, np.float32).reshape(batch, -1).astype(np.float64)
    if ours.shape != theirs.shape:
        return {"error": f"{ours.shape} scores instead of {theirs.shape}"}
    softmax = bool((abs(theirs.sum(1) - 1) < 1e-3).all() and (theirs >= 0).all())
    if softmax:
        ours = np.exp(ours - ours.max(1, keepdims=True))
        ours /= ours.sum(1, keepdims=True)
    difference = float(abs(ours - theirs).max() / abs(theirs).max())
    phases = {line.split()[0]: float(line.split()[1]) for line in told if len(line.split()) == 2}
    return {"difference": difference, "rounding": rounding, "softmax": softmax, "spread": float(theirs.std()), "phases": phases, "seconds": round(seconds, 2)}


def shortened(error):
    """Without the path of the file."""
    return re.sub(r"^error: \S+\.onnx: ", "", error.strip())[:300]


def is_right(row):
    """Within 1e-4, or what float32 costs the library itself: of a network that it disturbs more than that, nothing can be said."""
    return row.get("difference", 1) < max(1e-4, min(2 * (row.get("rounding") or 0), 1e-3))


def table(file):
    rows = [json.loads(line) for line in Path(file).read_text().splitlines()]
    print("| group | network | exporter | largest difference | first thing missing |\n| --- | --- | --- | --- | --- |")
    for row in sorted(rows, key=lambda row: (row["group"], row["name"], row["exporter"])):
        right = "difference" in row
        difference = f"{row['difference']:.1e}" if right else "-"
        error = "" if is_right(row) else row.get("error", "differs")
        print(f"| {row['group']} | {row['name']} | {row['exporter']} | {difference} | {error} |")
    missed = False
    for group in sorted({row["group"] for row in rows}):
        own = [row for row in rows if row["group"] == group]
        right = sum(map(is_right, own))
        missed |= right < TARGET.get(group, 1) * len(own)
        print(f"\n{group}: {right} of {len(own)} within 1e-4 of the largest score, or twice as far from float64 as PyTorch's float32")
    sys.exit(missed)


def main():
    if sys.argv[1] == "table":
        return table(sys.argv[2])
    binary, out, group = sys.argv[1:4]
    pattern = sys.argv[4] if len(sys.argv) > 4 else "."
    out = Path(out)
    if group == "drawn":
        return print("\n".join(timm_names()))
    done = set()
    if out.exists():
        done = {tuple(json.loads(line)[key] for key in ("group", "name", "exporter")) for line in out.read_text().splitlines()}
    if group == "light":
        import onnx

        folder = Path(onnx.__file__).parent / "backend/test/data/light"
        work = [(file.stem, "", file) for file in sorted(folder.glob("*.onnx"))]
    else:
        names = torchvision_names() if group == "torchvision" else timm_names()
        work = [(name, exporter, None) for exporter in ("script", "dynamo") for name in names]
    for name, exporter, file in work:
        if (group, name, exporter) in done or not re.search(pattern, name):
            continue
        row = {"group": group, "name": name, "exporter": exporter}
        try:
            with tempfile.TemporaryDirectory() as folder:
                side = 224
                if file:
                    file = filled(file, folder)
                    both = of_onnxruntime(file, side)
                else:
                    file = Path(folder) / "net.onnx"
                    model, side = made(group, name)
                    exported(settled(model, side), side, exporter == "dynamo", file)
                    both = of_pytorch(model, side)
                    del model
                row |= compared(binary, file, side, *both)
        except Exception as error:
            row["error"] = f"not exported or not run: {type(error).__name__}: {error}".replace("\n", " ")
        if "error" in row:
            row["error"] = shortened(row["error"])
        print(json.dumps(row), flush=True)
        with out.open("a") as rows:
            rows.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
