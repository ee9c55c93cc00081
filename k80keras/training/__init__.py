"""What `scripts/train.py` runs: a training run that survives being killed."""

from k80keras.training.config import RunConfig as RunConfig
from k80keras.training.run import run_training as run_training
from k80keras.training.summary import RunSummary as RunSummary

__all__ = ["RunConfig", "RunSummary", "run_training"]
