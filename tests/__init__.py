#: Timeout of tests: longer than any operation takes on a busy machine.
TEST_TIMEOUT_S = 180.0
