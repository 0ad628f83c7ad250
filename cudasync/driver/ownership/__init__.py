"""Floor 1. The owners of driver handles, and the handles' lifetimes."""
