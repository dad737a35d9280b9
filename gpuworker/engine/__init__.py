"""The engine process: owns the model and the device, and nothing else."""
