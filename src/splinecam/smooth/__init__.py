"""Networks with smooth functions: replaced by piecewise-linear ones, within proved bounds."""
