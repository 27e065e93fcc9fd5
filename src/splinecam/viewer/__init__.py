"""The live microscope: partitions in the browser or the notebook, to point at and zoom into."""
