"""Trains as one of the workers that `TF_CONFIG` or Slurm name; alone without them.

    worker_program.py FOLDER NAME [STOP_AT_EPOCH]

Writes what is learnt to FOLDER/NAME.npz. With STOP_AT_EPOCH it stops in the middle
of that epoch, and says so by the file FOLDER/NAME.stopped.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

from k80keras import K80Tuner, LearningRateWarmup
from k80keras._keras import keras, tf
from k80keras.data.replicas import batches_for_replicas
from k80keras.distribute.batch_size import global_batch_size
from k80keras.distribute.multi_worker import multi_worker_strategy

EPOCHS, BATCHES = 4, 5


class Stop(keras.callbacks.Callback):
    def __init__(self, epoch, path):
        super().__init__()
        self.epoch, self.path, self.now = epoch, path, -1

    def on_epoch_begin(self, epoch, logs=None):
        self.now = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if (self.now, batch) == (self.epoch, BATCHES // 2):
            self.path.touch()
            time.sleep(600)


def main(folder, name, stop_at="-1"):
    several = "TF_CONFIG" in os.environ or "SLURM_PROCID" in os.environ
    strategy = multi_worker_strategy() if several else tf.distribute.get_strategy()
    keras.utils.set_random_seed(3)
    per_replica = 8 if several else 16
    rng = np.random.default_rng(0)
    x = rng.normal(size=(16 * BATCHES, 6)).astype("float32")
    y = x[:, :3].argmax(1)
    batches = batches_for_replicas(
        (x, y), global_batch_size(per_replica, strategy), strategy
    )
    # 8 + 1 samples: the last batch can't be shared out by itself.
    validation = batches_for_replicas(
        tf.data.Dataset.from_tensor_slices((x[:9], y[:9])), 8, strategy
    )
    with strategy.scope():
        layers = [keras.layers.Dense(8, "tanh"), keras.layers.Dense(3)]
        model = keras.Sequential([keras.Input((6,)), *layers])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    backup = keras.callbacks.BackupAndRestore(str(folder / "backup" / name[:4]))
    warmup = LearningRateWarmup(num_replicas=2, warmup_epochs=3)
    stop = [Stop(int(stop_at), folder / f"{name}.stopped")] if stop_at != "-1" else []
    history = model.fit(
        batches,
        validation_data=validation,
        epochs=EPOCHS,
        verbose=2,
        callbacks=[K80Tuner(), backup, warmup, *stop],
    )
    arrays = {f"weight{n}": w for n, w in enumerate(model.get_weights())}
    arrays["val_loss"] = np.array(history.history["val_loss"])
    arrays["iterations"] = np.array(model.optimizer.iterations.numpy())
    np.savez(folder / f"{name}.npz", epochs=np.array(history.epoch), **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
