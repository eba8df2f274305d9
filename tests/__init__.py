#: Longer than anything takes on a machine that has much else to do: who waits so long waits for what will not come.
TEST_TIMEOUT_S = 180.0
