"""Topics as Spark DataFrames through RayDP, and as Ray Datasets."""
