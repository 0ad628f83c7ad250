"""The main job: an enhancement pipeline on a real photograph."""
