"""Rounds by hand: sites train on from their own part of the global network, then fuse again."""

import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

import pfnm
from pfnm.frameworks.sklearn import to_estimator

EPOCHS = 10  # of local training in a round

warnings.simplefilter("ignore", ConvergenceWarning)
warnings.simplefilter("ignore", pfnm.PFNMWarning)

x, y = load_digits(return_X_y=True)
x, x_test, y, y_test = x[:1400] / 16, x[1400:] / 16, y[:1400], y[1400:]
shares = [y < 6, (y > 2) & (y < 9), y > 4]  # each site has seen some of the digits
sites = [
    MLPClassifier((30,), max_iter=40, random_state=number).fit(x[mine], y[mine])
    for number, mine in enumerate(shares)
]
counts = [np.bincount(y[mine], minlength=10) for mine in shares]
fusion = pfnm.fuse(sites)  # their classes differ: labels are aligned
print(f"once: {fusion.model.score(x_test, y_test):.3f} with {fusion.widths}")
for number in range(2, 4):
    sites = [to_estimator(fusion.site_part(j)).set_params(random_state=0) for j in range(3)]
    for site, mine in zip(sites, shares, strict=True):
        for _ in range(EPOCHS):
            site.partial_fit(x[mine], y[mine])  # at the site, on its own data
    fusion = pfnm.fuse(sites, class_counts=counts, start=fusion.assignments)
    print(f"round {number}: {fusion.model.score(x_test, y_test):.3f} with {fusion.widths}")
