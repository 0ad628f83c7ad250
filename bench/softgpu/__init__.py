"""Software GPU: kernels and their work in; out, times beside other libraries, compile times."""
