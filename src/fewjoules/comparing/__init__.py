"""Train several schemes to one target and judge them: shared by the command ``compare`` and ``fewjoules.compare``."""
