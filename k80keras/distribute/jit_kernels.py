"""What TensorFlow compiles at first use, compiled before several dies need it."""

from __future__ import annotations

from k80keras._keras import tf

# Ops of layers, losses, metrics and optimizers for which TensorFlow 2.14's wheel
# holds no code for a GPU, found by running each op of `tf.raw_ops` in the simulated
# box (`tests/sim`) and watching what is loaded. A scalar, or an operand of another
# shape, has a kernel of its own: 61 in all, in 5 s on two CPU cores.
_ACTIVATIONS = "Elu Relu Selu Softplus Softsign".split()
_UNARY = (
    "Erf Exp Expm1 Floor Inv Log Log1p Neg OnesLike Round Rsqrt Sigmoid Sign Sqrt "
    "Square ZerosLike"
).split()
_BINARY = "FloorMod Maximum Minimum Pow SquaredDifference Xdivy Xlogy".split()


def load_jit_kernels(device: str) -> None:
    """Runs each of TensorFlow's JIT-compiled elementwise ops once on `device`.

    Two dies that compile in two threads at once race where LLVM registers what
    it can compile for: the first step of 3 of 95 runs with two simulated dies
    failed or hung, of 40 that had run one such op before, none did. With all of
    them compiled for one die, the other one later compiles alone.

    Args:
      device: TensorFlow's name of a GPU.
    """
    with tf.device(device):
        x, one = tf.ones([2, 2]), tf.ones([])
        for name in _ACTIVATIONS:
            getattr(tf.raw_ops, name)(features=x)
        for name in _UNARY:
            getattr(tf.raw_ops, name)(x=x)
        for left, right in ((x, x), (x, x[:, :1]), (x, one), (one, x)):
            for name in _BINARY:
                getattr(tf.raw_ops, name)(x=left, y=right)
            tf.logical_and(left > 0.0, right > 0.0)
            tf.logical_or(left > 0.0, right > 0.0)
        tf.logical_not(x > 0.0)
        tf.where(x > 0.0, x, x)
        tf.where(x > 0.0, x, one)
