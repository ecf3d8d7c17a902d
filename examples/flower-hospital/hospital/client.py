"""A hospital."""

from hospital.data import test_data, train_data
from pfnm.flower import client_app

app = client_app(train_data=train_data, test_data=test_data)
