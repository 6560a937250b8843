"""Stands in for sglang's CUDA kernels where there is no GPU: every name is there,
and fails when called. Pinned memory, which LoRA layers ask for even on a CPU, is
taken away."""

import importlib.abc
import importlib.machinery
import sys
import types

import torch

__version__ = "0"


class Missing:
    def __init__(self, name):
        self.__name__ = name

    def __call__(self, *args, **kwargs):
        raise NotImplementedError(f"sgl_kernel.{self.__name__} needs a GPU")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self.__name__}.{name}")


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Missing(name)


class Submodule(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        return __getattr__(name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.startswith("sgl_kernel."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Submodule(spec.name)

    def exec_module(self, module):
        pass


def unpinned(make):
    def made(*args, **kwargs):
        kwargs.pop("pin_memory", None)
        return make(*args, **kwargs)

    return made


sys.meta_path.append(Finder())
if not torch.cuda.is_available():
    for name in ("tensor", "empty", "zeros", "ones", "full", "empty_like", "zeros_like", "arange"):
        setattr(torch, name, unpinned(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda self, *args, **kwargs: self
