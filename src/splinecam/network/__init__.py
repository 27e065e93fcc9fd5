"""From a module or a file to a program: a list of affine stages and nonlinearities."""
