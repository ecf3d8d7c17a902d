"""Three clinics, each with its own scaler and classifier, become one pipeline."""

import warnings

from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pfnm

warnings.simplefilter("ignore", ConvergenceWarning)
warnings.simplefilter("ignore", pfnm.PFNMWarning)  # three small networks: it says so

x, y = load_breast_cancer(return_X_y=True)
x, x_test, y, y_test = train_test_split(x, y, test_size=0.3, random_state=0)
sites = [
    make_pipeline(StandardScaler(), MLPClassifier((20,), random_state=clinic)).fit(
        x[clinic::3], y[clinic::3]
    )
    for clinic in range(3)
]
fusion = pfnm.fuse(sites, budget="1x")
pipeline = fusion.model  # a pipeline again: one common scaler, one classifier
for number, site in enumerate(sites):
    print(f"clinic {number}: {site.score(x_test, y_test):.3f}")
print(f"fused:    {pipeline.score(x_test, y_test):.3f}, {fusion.network.parameters:,} parameters")
fusion.save("fused.skops", force=True)
