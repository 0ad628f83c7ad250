"""A perceptron of two layers learns digits: alone, on devices, in stages, in processes, by servers.

`alone`, `by_data`, `by_stages` and `by_servers` are the programs to read. `model` has the
arithmetic that they share, `digits` the data, `ways` the list, `rank` is what each process runs,
`outcome` compares, `table` and `curves` show it.
"""
