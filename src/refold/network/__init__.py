"""The filter between sandboxed commands and the network: it connects them to named hosts only."""
