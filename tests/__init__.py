#: Longer than anything takes on a machine that has much else to do: who waits so long waits for what will not come.
PATIENCE_S = 180.0
