# golden: by name only (its argument is a folder for thousands of graphs)
"""Makes graphs with random changes, and what ONNX Runtime computes of them: for `changed_graphs` of interchange.

pip install torch numpy onnx onnxscript onnxruntime; python tests/golden/onnx_mutations.py FOLDER [NUMBER [SEED]]
TOWERS_ONNX_MUTATIONS=FOLDER cargo test -p towers-interchange changed_graphs -- --nocapture

Changed are the graphs of torch_models and onnx_forms, and every `.onnx` in FOLDER/more, whose images have 32x32 pixels or as many
as the graph says.
"""

import copy
import json
import random
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import AttributeProto, TensorProto, helper, numpy_helper

import onnx_forms
from shared.numbers import numbers

BATCH = 2
OPERATORS = """Add AveragePool BatchNormalization Cast Clip Concat Conv Div Dropout Elu Erf Flatten Gather Gelu Gemm
GlobalAveragePool GlobalMaxPool Identity LogSoftmax MatMul Max MaxPool Mul Pad ReduceMax ReduceMean Relu Reshape Shape Sigmoid
Softmax Squeeze Sub Tanh Transpose Unsqueeze LeakyRelu Min Neg Exp Abs HardSwish HardSigmoid LayerNormalization Mish Pow Reciprocal
ReduceSum Slice Softplus Split Sqrt Sum""".split()
ATTRIBUTES = {
    "axis": [0, 1, 2, -1], "ceil_mode": [0, 1], "count_include_pad": [0, 1], "group": [1, 3], "transA": [0, 1], "transB": [0, 1],
    "alpha": [0.5, 1.0, 2.0], "beta": [0.5, 1.0], "epsilon": [1e-5, 0.1], "keepdims": [0, 1], "to": [1, 6, 7, 9, 10, 11],
    "auto_pad": ["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"], "mode": ["constant", "reflect", "edge"], "perm": [[0, 2, 3, 1], [0, 3, 1, 2], [1, 0]],
    "dilations": [[1, 1], [2, 2]], "strides": [[1, 1], [2, 1], [2, 2]], "pads": [[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0], [0, 0, 1, 1]],
    "kernel_shape": [[1, 1], [2, 2], [3, 3]], "approximate": ["none", "tanh"], "allowzero": [0, 1], "start": [0, 1], "end": [1, 3],
    "storage_order": [0, 1], "spatial": [0, 1], "axes": [[2, 3], [2], [1]], "noop_with_empty_axes": [0, 1], "num_groups": [1, 2, 4],
    "foo": [1, 1.0, "a"],
}


def bases(folder):
    golden = Path(__file__).parent / "torch_models"
    for file in sorted(golden.glob("*.onnx")):
        if "training" not in file.name:
            yield file.name, onnx.load(file)
    for group in [onnx_forms.sums, onnx_forms.activations, onnx_forms.windows, onnx_forms.normalizations, onnx_forms.dense, onnx_forms.shapes, onnx_forms.more_types, onnx_forms.folded, onnx_forms.views, onnx_forms.channels, onnx_forms.old]:
        group()
    for made in onnx_forms.FORMS:
        if "logits" in made:
            yield made["name"], onnx_forms.proto(made)
    for file in sorted((folder / "more").glob("*.onnx")):
        yield file.name, onnx.load(file)


def pick(draw, graph):
    return draw.choice(graph.node)


def attribute(draw, graph):
    node = pick(draw, graph)
    key = draw.choice([own.name for own in node.attribute] + draw.choices(sorted(ATTRIBUTES), k=2))
    kept = [own for own in node.attribute if own.name != key]
    change = draw.choice(ATTRIBUTES.get(key, [0, 1]))
    remove = draw.random() < 0.2
    node.ClearField("attribute")
    node.attribute.extend(kept)
    if not remove:
        node.attribute.append(helper.make_attribute(key, change))
    return f"{node.op_type} {node.name}: {key}={'nothing' if remove else change}"


def number(draw, graph):
    """An attribute's numbers, one of them changed."""
    node = pick(draw, graph)
    own = [own for own in node.attribute if own.type in (AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOAT)]
    if not own:
        return attribute(draw, graph)
    own = draw.choice(own)
    if own.type == AttributeProto.INT:
        own.i += draw.choice([-1, 1, 2])
    elif own.type == AttributeProto.FLOAT:
        own.f *= draw.choice([0.5, 2.0, -1.0, 0.0])
    elif own.ints:
        at = draw.randrange(len(own.ints))
        if draw.random() < 0.2:
            del own.ints[at]
        else:
            own.ints[at] += draw.choice([-1, 1, 2])
    return f"{node.op_type} {node.name}: {own.name} changed"


def names(graph):
    return ["images", *[tensor.name for tensor in graph.initializer], *[name for node in graph.node for name in node.output if name]]


def operand(draw, graph):
    node = pick(draw, graph)
    if draw.random() < 0.4 or not node.input:
        node.input.append(draw.choice(names(graph) + [""]))
        return f"{node.op_type} {node.name}: one operand more, {node.input[-1]}"
    at = draw.randrange(len(node.input))
    kind = draw.random()
    if kind < 0.25:
        del node.input[at]
        return f"{node.op_type} {node.name}: operand {at} is gone"
    if kind < 0.5:
        node.input[at], node.input[0] = node.input[0], node.input[at]
        return f"{node.op_type} {node.name}: operand {at} is swapped"
    node.input[at] = draw.choice(names(graph))
    return f"{node.op_type} {node.name}: operand {at} is {node.input[at]}"


def operator(draw, graph):
    node = pick(draw, graph)
    before, node.op_type = node.op_type, draw.choice(OPERATORS)
    if draw.random() < 0.7:
        node.ClearField("attribute")
    return f"{before} {node.name} is {node.op_type}"


def shape(draw, graph):
    """Another shape of an initializer, of as many numbers, or of more."""
    if not graph.initializer:
        return operator(draw, graph)
    tensor = draw.choice(graph.initializer)
    values = numpy_helper.to_array(tensor)
    dims = list(values.shape)
    kind = draw.randrange(5)
    if kind == 0:
        dims.insert(draw.randrange(len(dims) + 1), 1)
    elif kind == 1 and dims:
        draw.shuffle(dims)
    elif kind == 2 and 1 in dims:
        dims.remove(1)
    elif kind == 3:
        values, dims = values.ravel()[:1], draw.choice([[], [1], [1, 1]])
    else:
        values = values.ravel()
        values = (values[::-1] if values.dtype == np.float32 else values + draw.choice([-1, 1])).copy()
    if values.size != int(np.prod(dims)):
        return operator(draw, graph)
    tensor.CopyFrom(numpy_helper.from_array(values.reshape(dims), tensor.name))
    return f"{tensor.name} has the shape {dims}, change {kind}"


def insertion(draw, graph):
    """A node between two others; all or some of the readers read it."""
    outputs = [name for node in graph.node for name in node.output[:1]]
    value = draw.choice(outputs + ["images"])
    op = draw.choice(["Identity", "Cast", "Cast", "Relu", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Reshape", "Sigmoid", "Dropout", "Mul", "Add", "Clip"])
    inputs, attributes, constants = [value], {}, []
    if op == "Cast":
        attributes["to"] = draw.choice([1, 6, 7, 9, 10, 11])
    elif op == "Transpose":
        attributes["perm"] = draw.choice([[0, 2, 3, 1], [0, 3, 1, 2], [0, 1, 3, 2], [1, 0], [0, 1]])
    elif op in ("Squeeze", "Unsqueeze"):
        constants = [draw.choice([[2, 3], [0], [1], [-1]])]
    elif op == "Reshape":
        constants = [draw.choice([[0, -1], [-1, 3], [1, -1], [-1, 6], [0, 0], [0, 2, -1], [-1]])]
    elif op in ("Mul", "Add", "Clip"):
        constants = [draw.choice([np.float32(0.5), np.full(1, 0.5, np.float32), np.float32(0), np.array([0.1, 0.2, 0.3], np.float32).reshape(3, 1, 1), np.array([0.1, 0.2, 0.3], np.float32)])]
        constants += [np.float32(0.4)] if op == "Clip" and draw.random() < 0.3 else []
    for k, constant in enumerate(constants):
        made = constant if isinstance(constant, (np.ndarray, np.generic)) else np.array(constant, np.int64)
        graph.initializer.append(numpy_helper.from_array(np.asarray(made), f"new{k}"))
        inputs.append(f"new{k}")
    places = [k for k, node in enumerate(graph.node) if value in node.output]
    place = places[0] + 1 if places else 0
    readers = [node for node in list(graph.node)[place:] if value in node.input]
    if draw.random() < 0.3 and len(readers) > 1:
        readers = readers[: len(readers) // 2]
    for node in readers:
        for at, name in enumerate(node.input):
            if name == value:
                node.input[at] = "inserted"
    if value == graph.output[0].name:
        graph.output[0].name = "inserted"
    graph.node.insert(place, helper.make_node(op, inputs, ["inserted"], name="inserted", **attributes))
    return f"{op} {attributes} {[np.asarray(c).tolist() for c in constants]} behind {value}, for {len(readers)} readers"


def output(draw, graph):
    graph.output[0].name = draw.choice([name for name in names(graph)])
    return f"the output is {graph.output[0].name}"


def opset(draw, model):
    model.opset_import[0].version = draw.choice([6, 7, 9, 10, 11, 12, 13, 17, 18, 20, 21, 22, 24])
    return f"operators of version {model.opset_import[0].version}"


CHANGES = [attribute, number, operand, operator, shape, insertion, insertion, output]


def changed(draw, model):
    model = copy.deepcopy(model)
    told = []
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        told.append(opset(draw, model) if draw.random() < 0.06 else draw.choice(CHANGES)(draw, model.graph))
    for own in model.graph.output:
        own.type.tensor_type.ClearField("shape")
    model.graph.ClearField("value_info")
    return model, "; ".join(told)


def end(graph):
    """The operator that gives the output, but for what changes no numbers."""
    producers = {name: node for node in graph.node for name in node.output}
    value = graph.output[0].name
    for _ in range(50):
        node = producers.get(value)
        if node is None or node.op_type not in ("Identity", "Reshape", "Flatten", "Squeeze", "Dropout", "Cast", "Concat"):
            return "" if node is None else node.op_type
        value = node.input[0] if node.input else ""
    return ""


def is_last(graph):
    """Whether the channels are the last axis of the images."""
    dims = [dim.dim_value for dim in graph.input[0].type.tensor_type.shape.dim]
    return dims[1] != 3


def is_half(graph):
    """Whether there are 16-bit floats, whose rounding is that of ONNX Runtime alone."""
    casts = [own.i for node in graph.node if node.op_type == "Cast" for own in node.attribute if own.name == "to"]
    return bool({10, 16} & {*casts, *[tensor.data_type for tensor in graph.initializer]})


def computed(model, image):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    images = numbers("images", (BATCH, *image, 3))
    images = images if is_last(model.graph) else images.transpose(0, 3, 1, 2)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        own = session.get_inputs()[0]
        # A graph of one image sees one after the other.
        parts = [images[k : k + 1] for k in range(BATCH)] if own.shape[0] == 1 else [images]
        found = np.concatenate([session.run(None, {own.name: part})[0] for part in parts])
        if found.dtype != np.float32 or not np.isfinite(found).all() or found.size > 2000:
            return None, "another type, or no numbers"
        return [float(f"{x:.8g}") for x in found.ravel()], ""
    except Exception as error:
        return None, str(error).replace("\n", " ")[:160]


def main():
    folder, number_, seed = Path(sys.argv[1]), *[int(arg) for arg in (sys.argv[2:] + ["2000", "1"][len(sys.argv) - 2 :])]
    draw = random.Random(seed)
    every = list(bases(folder))
    entries = []
    folder.mkdir(exist_ok=True)
    for k in range(number_):
        name, base = every[k % len(every)]
        model, told = changed(draw, base) if k >= len(every) else (base, "nothing")
        dims = base.graph.input[0].type.tensor_type.shape.dim
        image = [dim.dim_value or 32 for dim in (dims[1:3] if is_last(base.graph) else dims[2:])]
        image = [4, 6] if name == "residual_sizes.onnx" else image
        logits, error = computed(model, image)
        file = folder / f"{k}.onnx"
        file.write_bytes(model.SerializeToString())
        entries.append({"file": file.name, "change": f"{name}: {told}", "image": image, "end": end(model.graph), "logits": logits, "error": error, "half": is_half(model.graph)})
    (folder / "all.json").write_text(json.dumps(entries))
    print(f"{len(entries)} graphs; ONNX Runtime computes {sum(entry['logits'] is not None for entry in entries)}")


if __name__ == "__main__":
    main()
