"""One thin click command per stage of dvc.yaml."""
