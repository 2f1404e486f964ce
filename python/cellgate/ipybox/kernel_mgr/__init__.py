"""ipybox's kernels."""
