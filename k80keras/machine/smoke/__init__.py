"""Each library under TensorFlow, made to compute something, in a child process."""
