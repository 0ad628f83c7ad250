"""The main job: an enhancement pipeline on a real photograph, run three ways and compared.

`pipeline` is the program to read; `filters` launches its kernels; `photo` reads and writes files;
`reference` computes the same in NumPy; `trial` runs and compares; `chart` draws when each op ran.
"""
