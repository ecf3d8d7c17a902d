"""Networks of two sites arrive as ONNX files; one ONNX file leaves and runs in onnxruntime."""

import warnings
from pathlib import Path

import numpy as np
import onnxruntime
from skl2onnx import to_onnx
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

import pfnm

warnings.simplefilter("ignore", ConvergenceWarning)
warnings.simplefilter("ignore", pfnm.PFNMWarning)  # two small networks: it says so

x, y = load_digits(return_X_y=True)
x = (x / 16).astype(np.float32)
for name, rows in {"north": slice(0, 700), "south": slice(700, 1400)}.items():
    classifier = MLPClassifier((40,), max_iter=60, random_state=0).fit(x[rows], y[rows])
    Path(f"{name}.onnx").write_bytes(to_onnx(classifier, x[:1]).SerializeToString())

fusion = pfnm.fuse(["north.onnx", "south.onnx"], input_range=(0, 1))
fusion.save("global.onnx", force=True)

session = onnxruntime.InferenceSession("global.onnx")
(probabilities,) = session.run(None, {session.get_inputs()[0].name: x[1400:]})
for name in ("north.onnx", "south.onnx"):
    print(f"{name}: {(pfnm.load(name).predict(x[1400:]) == y[1400:]).mean():.3f}")
print(f"global.onnx, in onnxruntime: {(probabilities.argmax(axis=1) == y[1400:]).mean():.3f}")
