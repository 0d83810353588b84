"""The closed table of codings: how the arrays of one section become bytes, and arrays again.

A section holds the same array of several tensors, such as the means of all Gaussians. Lossless:

    raw       values as they are
    planes    first bytes of all values, then second bytes and so on, by their frequencies
    integers  by their frequencies
    exceptions  where one value is most of each array: places and values of the others
    rising    rising integers, by the distances between them

Lossy, within the tolerance (see steps.py):

    half      float16, if no value is lost
    half planes   the same, in planes
    steps     multiples of a step
    relative  multiples of a share of the own std, whose log is coded in steps; frequencies are
              learned apart for eight ranges of that std
"""

from pocketbayes.codec.byte_codings import HALF, HALF_PLANES, PLANES, RAW
from pocketbayes.codec.float_codings import RELATIVE, STEPS
from pocketbayes.codec.integer_codings import EXCEPTIONS, INTEGERS, RISING

CODINGS = {
    "raw": RAW,
    "planes": PLANES,
    "integers": INTEGERS,
    "exceptions": EXCEPTIONS,
    "rising": RISING,
    "half": HALF,
    "half planes": HALF_PLANES,
    "steps": STEPS,
    "relative": RELATIVE,
}
