"""Laboratory: traces, policy simulator, scores, lower bound, and the papers' experiments.

`traces` reads posting times; `simulate` runs the same policy objects as the service; `score`
evaluates any list of polls by one rule; `lower_bound` is the clairvoyant bound that no policy can
beat; `compare` compares policies at equal budget.
"""
