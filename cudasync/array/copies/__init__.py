"""Floor 4, copies. Arrays, views and host memory in; out, the ops that copy between them."""
