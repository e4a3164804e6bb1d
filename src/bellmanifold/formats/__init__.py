"""Reading and writing problems and data: JSON, npz and Gymnasium's tables."""
