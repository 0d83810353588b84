"""Data sets and loaders for the command line and the benchmarks."""

from pocketbayes.data.images import ImageLoader, ImageSet

__all__ = ["ImageLoader", "ImageSet"]
