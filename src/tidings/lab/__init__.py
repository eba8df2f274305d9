"""The laboratory: traces, a simulator that replays them under any policy, the limit, metrics, and the papers' experiments.

`traces` reads posting times; `simulate` runs the very policy objects that the live service runs; `score` judges any poll
list by one rule; `limit` is what nobody can beat; `compare` puts policies side by side at equal budget.
"""
