"""Six measurements of automatic parallelism, after the chapter of that name in "Dive into Deep
Learning": each a program without a stream, run one thing after the other and together.

`two_gpus`, `cpu_and_gpu`, `copying`, `small_operations`, `dag` and `perceptron` are the programs
to read. `experiment` defines an experiment, `rounds` runs it, `clocks` reads the time, `intervals`
finds overlaps, `measuring` compares and judges, `report` and `picture` show the results.
"""
