"""Profiles and traces that others published."""
import os
import pathlib

EXTRACTS = pathlib.Path(__file__).parent / "reference_data"


def reference_file(name):
    """A published file ("pipedream/vgg16.graph.txt"), or its extract unless SPILLWAY_REFERENCE_DATA is set."""
    folder = os.environ.get("SPILLWAY_REFERENCE_DATA", "")
    return pathlib.Path(folder) / name if folder else EXTRACTS / name
