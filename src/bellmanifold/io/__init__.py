"""Reading and writing problems and data: JSON, npz, CSV, DRN, PRISM and JANI files, Gymnasium environments."""
