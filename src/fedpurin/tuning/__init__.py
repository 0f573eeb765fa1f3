"""Which method and settings for one's own data, model and budget: `fedpurin tune`.

candidates   a list of configurations, written down beforehand
trial        one candidate and its run, which goes on from rung to rung
search       successive halving on the validation samples: rungs, promotion, time, resuming
outcome      the Pareto front, the recommended configuration, what was not tried; the files of these
"""

from fedpurin.tuning.search import tune

__all__ = ["tune"]
