"""Imported before anything of AgileRL: without it, 2.58 calls CUDA-only kernels as soon as a text model trains on a CPU."""

import agilerl

agilerl.HAS_LIGER_KERNEL = False
