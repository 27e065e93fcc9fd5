"""Networks and properties in the files of others: ONNX, VNN-LIB, scikit-learn."""
