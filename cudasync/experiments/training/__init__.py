"""A perceptron of two layers learns digits: alone, on devices, in stages, in processes, by servers.

`alone`, `by_data`, `by_stages` and `by_servers` are the programs to read. `model` has their common
arithmetic, `digits` the data and `ways` the list. Each process runs `rank`. `outcome` compares the
ways, `table` and `curves` show them.
"""
