"""A perceptron of two layers learns handwritten digits: alone, on devices, in stages, in processes.

`alone`, `by_data` and `by_stages` are the programs to read. `model` has the arithmetic that they
share, `digits` the data, `ways` the list, `rank` is what each process runs, `outcome` compares,
`table` and `curves` show it.
"""
