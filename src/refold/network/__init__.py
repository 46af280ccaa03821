"""The proxy through which sandboxed commands connect to the hosts that they may reach."""
