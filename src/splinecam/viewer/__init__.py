"""The live microscope: a partition in the browser or the notebook, with which one can interact."""
