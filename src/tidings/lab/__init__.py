"""Laboratory to simulate polling policies on recorded or generated posting times.

`traces` reads posting times; `simulate` runs the same policy objects as the service; `score`
computes delays and missed posts of any list of polls; `lower_bound` computes the clairvoyant bound,
the lowest delay that any choice of polls could reach; `compare` compares policies at equal budget;
`papers` repeats the experiments of the papers.
"""
