"""Commands beside the DAG: what a person asks before, after and around a run."""
